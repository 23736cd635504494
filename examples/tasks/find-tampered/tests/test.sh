#!/bin/sh
# This runs in a fresh sandbox, to which the declared artifacts were brought and nothing else.
reward=0
if diff /tests/tampered.txt /app/tampered.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
