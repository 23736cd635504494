#!/bin/sh
# Compares, and runs nothing that the agent has made.
reward=0
if cmp -s /tests/answer.txt /app/out/answer.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
