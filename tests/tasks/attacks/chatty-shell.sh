#!/bin/sh
# A shell that says more than it was asked: what reads its answers must not trip over them.
# task: answer   separate: 0   shared: 0 restored
mkdir -p /app/out; echo 0 > /app/out/answer.txt
cp /usr/bin/sh /usr/bin/sh.real
printf '#!/usr/bin/sh.real
echo dir; echo dir; echo dir
exec /usr/bin/sh.real "$@"
' > /root/sh
chmod 755 /root/sh
mv /root/sh /usr/bin/sh
