#!/bin/sh
# An answer that nobody ever finishes reading.
# task: answer   separate: 0   shared: VerifierTimeoutError
mkdir -p /app/out
mkfifo /app/out/answer.txt
