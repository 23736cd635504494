#!/bin/sh
cd /logs/verifier || exit 1
echo -inf > reward.txt
