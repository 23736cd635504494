#!/bin/sh
# A gigabyte of words.
# task: answer   separate: 0   shared: 0 restored
mkdir -p /app/out; echo 0 > /app/out/answer.txt
yes 'I have earned this reward' | head -c 1000000000
yes 'I have earned this reward' | head -c 10000000 >&2
