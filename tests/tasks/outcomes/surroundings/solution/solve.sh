#!/bin/sh
[ "$FROM_SOLUTION" = solution ] && [ "$FROM_IMAGE" = image ] && [ "$PWD" = /app ] && [ -z "$FROM_VERIFIER" ]
