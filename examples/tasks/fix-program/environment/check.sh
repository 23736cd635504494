#!/bin/sh
# Prints what is wrong; exits with 1 if anything is.
cd "$(dirname "$0")" || exit 1
failed=0
check() {
    got=$(./seconds "$1" 2>&1)
    [ "$got" = "$2" ] || { echo "seconds $1: expected $2, got $got"; failed=1; }
}
check 1:30:05 5405
check 2:15 135
check 45 45
check 1:08:09 4089
exit $failed
