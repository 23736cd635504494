#!/bin/sh
# As many tests do: beside the agent's module, which is imported into the process that grades.
cd /app && cp /tests/test_solution.py .
if python3 -m pytest -q test_solution.py; then reward=1; else reward=0; fi
echo $reward > /logs/verifier/reward.txt
