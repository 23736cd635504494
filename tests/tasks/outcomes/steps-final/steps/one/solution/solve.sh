#!/bin/sh
echo one >> /app/steps.txt
