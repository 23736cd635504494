#!/bin/sh
reward=0
cd /srv/site && find . -printf '%m %p\n' | LC_ALL=C sort -k2 | diff /tests/modes.txt - && reward=1
for file in $(find . -type f ! -name '* *'); do
    [ "./$(cat "$file")" = "$file" ] || { echo "$file was changed"; reward=0; }
done
echo $reward > /logs/verifier/reward.txt
