#!/bin/sh
reward=0
best=$(head -c 20 /app/best.txt)
case $best in
    '' | *[!0-9]*) ;;
    *) [ "$best" -gt 1000 ] && [ "$(factor "$best")" = "$best: $best" ] && reward=1 ;;
esac
echo $reward > /logs/verifier/reward.txt
