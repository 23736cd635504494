#!/bin/sh
set -e
cd /srv/inbox
for invoice in *; do
    date=$(sed -n '1s/^date: //p' "$invoice")
    folder=/srv/archive/$(echo "$date" | cut -c1-4)/$(echo "$date" | cut -c6-7)
    mkdir -p "$folder"
    mv "$invoice" "$folder/"
    echo "$date $invoice"
done | sort | cut -d' ' -f2- > /srv/archive/INDEX
