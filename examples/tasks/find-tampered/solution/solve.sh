#!/bin/sh
set -e
cd /app/ledger
{
    while read -r sum name; do
        if [ ! -e "$name" ]; then
            echo "missing $name"
        elif ! echo "$sum  $name" | sha256sum --check --status; then
            echo "changed $name"
        fi
    done < ../SHA256SUMS
    for name in *; do grep -q "  $name\$" ../SHA256SUMS || echo "added $name"; done
} | LC_ALL=C sort > ../tampered.txt
