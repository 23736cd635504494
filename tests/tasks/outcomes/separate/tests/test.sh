#!/bin/sh
# The artifact is here, what else the agent wrote is not.
reward=0
if [ -e /app/answer.txt ] && [ ! -e /app/other.txt ] && [ ! -e /solution ]; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
