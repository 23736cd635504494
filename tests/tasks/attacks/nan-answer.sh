#!/bin/sh
# NaN as the reward, left for the verifier to find.
# task: answer   separate: 0   shared: 0 restored
mkdir -p /app/out
echo nan > /app/out/answer.txt
echo nan > /logs/verifier/reward.txt
echo '{"reward": NaN}' > /logs/verifier/reward.json
