#!/bin/sh
# The report must equal the one beside this script.
reward=0
if diff /tests/report.csv /app/report.csv; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
