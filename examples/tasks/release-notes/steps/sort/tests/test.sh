#!/bin/sh
reward=0
if diff /tests/features.txt /app/features.txt && diff /tests/fixes.txt /app/fixes.txt; then
    reward=1
fi
echo $reward > /logs/verifier/reward.txt
