#!/bin/sh
set -e
cd /app
subjects() { sed -nE "s/^[0-9a-f]+ $1(\(([^)]*)\))?: (.*)/\3 (\2)/p" commits.txt | sed 's/ ()$//'; }
subjects feat > features.txt
subjects fix > fixes.txt
