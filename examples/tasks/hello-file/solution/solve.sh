#!/bin/sh
echo 'Hello, sandbox!' > /app/hello.txt
