#!/bin/sh
set -e
cd /app
{
    echo 'path,requests,errors,bytes'
    awk '{
        path = $7; sub(/\?.*/, "", path)
        requests[path]++
        if ($9 >= 500) errors[path]++
        if ($10 != "-") bytes[path] += $10
    }
    END { for (p in requests) printf "%s,%d,%d,%d\n", p, requests[p], errors[p], bytes[p] }' \
        access.log | LC_ALL=C sort -t, -k2,2nr -k1,1
} > report.csv
