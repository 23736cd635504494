#!/bin/sh
set -e
while read -r what who text; do
    case $what in
        TODO) /app/notes add "${who%:}" "$text" ;;
        DONE) /app/notes done "$(/app/notes list | grep -F "|${who%:}|$text" | cut -d' ' -f1)" ;;
    esac
done < /app/minutes.txt
