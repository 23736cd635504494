#!/bin/sh
# A file of a terabyte that takes no space.
# task: answer   separate: 0   shared: 0 restored
mkdir -p /app/out
truncate -s 1T /app/out/answer.txt
