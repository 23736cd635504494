#!/bin/sh
set -e
cd /app
{
    echo "# Version $(cat VERSION)"
    printf '\n## New\n\n'
    sed 's/^/- /' features.txt
    printf '\n## Mended\n\n'
    sed 's/^/- /' fixes.txt
} > NOTES.md
