#!/bin/sh
# More rights and resources, from the kernel's files.
# task: answer   separate: 0   shared: 0 restored
mkdir -p /app/out; echo 0 > /app/out/answer.txt
for file in /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max \
    /sys/fs/cgroup/cgroup.procs /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do
    if echo 1 > "$file"; then echo "wrote $file" > /app/out/answer.txt; fi
done 2> /dev/null
mkdir /sys/fs/cgroup/mine 2> /dev/null && echo made > /app/out/answer.txt
true
