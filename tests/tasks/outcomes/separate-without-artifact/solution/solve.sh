#!/bin/sh
echo no > /app/other.txt
