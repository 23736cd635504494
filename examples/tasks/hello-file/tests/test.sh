#!/bin/sh
# The whole of grading: leave a number in /logs/verifier/reward.txt.
reward=0
if echo 'Hello, sandbox!' | cmp - /app/hello.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
