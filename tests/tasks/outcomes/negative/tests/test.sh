#!/bin/sh
cd /logs/verifier || exit 1
echo -3 > reward.txt
