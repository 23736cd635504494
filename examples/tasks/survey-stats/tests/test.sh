#!/bin/sh
# reward.json may hold several rewards; the one named "reward" is the trial's.
right() { echo "$2" | cmp -s - "/app/$1.txt" && echo 1 || echo 0; }
mean=$(right mean 3.62)
median=$(right median 4.0)
histogram=$(right histogram '1 1
2 2
3 2
4 4
5 4')
reward=$(awk "BEGIN { printf \"%.4f\", ($mean + $median + $histogram) / 3 }")
printf '{"reward": %s, "mean": %s, "median": %s, "histogram": %s}\n' \
    "$reward" "$mean" "$median" "$histogram" > /logs/verifier/reward.json
