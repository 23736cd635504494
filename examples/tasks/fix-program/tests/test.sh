#!/bin/sh
# Durations that the agent has not seen.
reward=1
while read -r duration expected; do
    got=$(/app/seconds "$duration")
    [ "$got" = "$expected" ] || { echo "$duration: expected $expected, got $got"; reward=0; }
done < /tests/durations.txt
for wrong in '' 1:2:3:4 1h 5: ::; do
    /app/seconds "$wrong" 2> /dev/null
    [ $? -eq 2 ] || { echo "'$wrong' was not refused"; reward=0; }
done
echo $reward > /logs/verifier/reward.txt
