#!/bin/sh
# The answer is a file and a link by turns, so that what is checked is not what is read.
# task: answer   separate: 0   shared: ? shared
mkdir -p /app/out
cd /app/out || exit 1
setsid sh -c 'while :; do
    ln -sf /tests/answer.txt link; mv -f link answer.txt; echo 0 > file; mv -f file answer.txt
done' > /dev/null 2>&1 < /dev/null &
