#!/bin/sh
set -e
cp "$(dirname "$0")/server.pl" /app/server.pl
# In a session of its own and without our output, so that it outlives this script.
setsid perl /app/server.pl > /app/server.log 2>&1 < /dev/null &
for try in 1 2 3 4 5 6 7 8 9 10; do
    perl -MIO::Socket::INET -e 'exit !IO::Socket::INET->new("127.0.0.1:7070")' && exit 0
    sleep 0.2
done
cat /app/server.log
exit 1
