#!/bin/sh
# The reward before the test, in every shape that might be in the way.
# task: answer   separate: 0   shared: 0 restored
mkdir -p /app/out; echo 0 > /app/out/answer.txt
cd /logs/verifier || exit 1
mkdir reward.json
echo 1 > reward.json/reward.json
ln -s /dev/null reward.txt
ln -s /dev/full test-stdout.txt
