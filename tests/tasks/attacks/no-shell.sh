#!/bin/sh
# No shell is left: nothing of the agent's own sandbox can be asked any more.
# task: answer   separate: *   shared: *
mkdir -p /app/out; echo 0 > /app/out/answer.txt
rm /usr/bin/sh
