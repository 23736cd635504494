#!/bin/sh
# Root's eyes see everything: where the invoices are, and whose they are.
reward=1
cd /srv/archive || reward=0
find . -type f | LC_ALL=C sort | diff /tests/files.txt - || reward=0
diff /tests/INDEX INDEX || reward=0
[ -z "$(ls /srv/inbox)" ] || reward=0
[ -z "$(find . ! -user 1000)" ] || { echo 'not all is the clerk'"'"'s'; reward=0; }
grep -qx 'A kettle' './2024/02/kettle (copy).txt' || reward=0
echo $reward > /logs/verifier/reward.txt
