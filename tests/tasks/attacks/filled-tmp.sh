#!/bin/sh
# Memory and disk full to the brim.
# task: answer   separate: *   shared: *
mkdir -p /app/out; echo 0 > /app/out/answer.txt
for folder in /dev/shm /tmp /run /var/tmp; do
    dd if=/dev/zero of=$folder/full bs=1M count=400 2> /dev/null
done
true
