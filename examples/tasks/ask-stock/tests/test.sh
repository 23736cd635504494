#!/bin/sh
reward=0
if diff /tests/reorder.txt /app/reorder.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
