#!/bin/sh
echo yes | tee /app/answer.txt > /app/other.txt
