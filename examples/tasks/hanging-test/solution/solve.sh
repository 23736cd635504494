#!/bin/sh
echo done > /app/state.txt
