#!/bin/sh
# An answer without an end.
# task: answer   separate: 0   shared: 0 restored
mkdir -p /app/out
mknod /app/out/answer.txt c 1 5 || ln -s /dev/zero /app/out/answer.txt
