#!/bin/sh
[ ! -e /tests/left ] && [ ! -e /logs/verifier/left ] && echo 1 > /logs/verifier/reward.txt
