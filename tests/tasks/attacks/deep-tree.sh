#!/bin/sh
# A tree too deep for those who walk it by its names.
# task: answer   separate: SnapshotRefusedError   shared: SnapshotRefusedError
mkdir -p /app/out
cd /app/out || exit 1
n=0
while [ $n -lt 1500 ]; do mkdir d && cd -P d || break; n=$((n + 1)); done
