#!/bin/sh
cd /logs/verifier || exit 1
: > reward.txt
