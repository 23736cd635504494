#!/bin/sh
grep -qx done /app/state.txt && echo 1 > /logs/verifier/reward.txt
until [ -e /app/never ]; do sleep 0.2; done
