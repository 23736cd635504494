#!/bin/sh
echo two >> /app/steps.txt
