#!/bin/sh
# A process that goes on writing NaN, which would spoil every mean.
# task: answer   separate: 0   shared: *
mkdir -p /app/out; echo 0 > /app/out/answer.txt
setsid sh -c 'while :; do echo nan > /logs/verifier/n; mv /logs/verifier/n /logs/verifier/reward.json
done' > /dev/null 2>&1 < /dev/null &
