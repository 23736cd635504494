#!/bin/sh
reward=0
if perl /tests/ask.pl; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
