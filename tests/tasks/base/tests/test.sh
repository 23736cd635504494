#!/bin/sh
reward=0
if echo yes | cmp -s - /app/answer.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
