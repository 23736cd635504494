#!/bin/sh
echo yes > /app/answer.txt
exit 3
