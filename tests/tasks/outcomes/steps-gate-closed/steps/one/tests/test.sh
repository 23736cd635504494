#!/bin/sh
echo 0.5 > /logs/verifier/reward.txt
