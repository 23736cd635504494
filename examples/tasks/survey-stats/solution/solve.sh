#!/bin/sh
set -e
cd /app
grep '^[1-5]$' answers.txt | sort -n > /tmp/sorted
awk '{ sum += $1 } END { printf "%.2f\n", sum / NR }' /tmp/sorted > mean.txt
awk '{ a[NR] = $1 } END { printf "%.1f\n", (a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2 }' \
    /tmp/sorted > median.txt
for n in 1 2 3 4 5; do echo "$n $(grep -c "^$n\$" /tmp/sorted)"; done > histogram.txt
