#!/bin/sh
reward=0
if diff /tests/NOTES.md /app/NOTES.md; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
