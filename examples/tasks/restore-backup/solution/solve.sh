#!/bin/sh
set -e
mkdir -p /restored
cd /restored
for archive in /backup/*.tar.gz; do
    tar -xzf "$archive"
    [ ! -e .deleted ] || while read -r path; do rm "$path"; done < .deleted
    rm -f .deleted
done
