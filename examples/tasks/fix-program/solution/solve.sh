#!/bin/sh
set -e
cd /app
# Two faults: the first field is not always the hours, and 08 is no octal number.
sed -i '/^total=/,$d' seconds
cat >> seconds <<'END'
total=0
for part in "$@"; do
    while [ "${part#0}" != "$part" ] && [ "$part" != 0 ]; do part=${part#0}; done
    total=$((total * 60 + part))
done
echo $total
END
./check.sh
