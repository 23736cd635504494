#!/bin/sh
echo yes > /app/answer.txt
sleep 60
