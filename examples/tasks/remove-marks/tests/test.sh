#!/bin/sh
reward=0
if diff -r /tests/pages /app/pages; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
