#!/bin/sh
# More rights and resources, from the kernel's files.
# task: answer   separate: 0   shared: 0 restored
# What it got hold of earns it the right answer: so the reward tells whether there was anything.
mkdir -p /app/out; echo 0 > /app/out/answer.txt
got() { echo 1764 > /app/out/answer.txt; }
for file in /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max \
    /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/mine.txt \
    /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do
    if echo 1 > "$file"; then got; fi
done 2> /dev/null
for folder in /sys/fs/cgroup /sys/fs/cgroup/memory /sys/fs/cgroup/pids; do
    if mkdir "$folder/mine"; then got; fi
done 2> /dev/null
true
