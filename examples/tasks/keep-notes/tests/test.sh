#!/bin/sh
# There is no /app here: only this image and what was collected.
reward=0
if diff /tests/expected.txt /logs/artifacts/notes.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
