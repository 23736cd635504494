#!/bin/sh
# The currency is the environment's, so the expected totals are completed with it.
reward=0
sed "2,\$s/\$/ $CURRENCY/" /tests/totals.csv > /tmp/expected.csv
if diff /tmp/expected.csv /app/totals.csv; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
