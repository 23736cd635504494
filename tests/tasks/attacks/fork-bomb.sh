#!/bin/sh
# More processes than there may be, alive when the agent ends.
# task: answer   separate: 0   shared: *
mkdir -p /app/out; echo 0 > /app/out/answer.txt
for n in 1 2 3; do (setsid sh -c 'while :; do sleep 100 & done' > /dev/null 2>&1 < /dev/null &); done
sleep 1
true
