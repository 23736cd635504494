#!/bin/sh
# Full marks where the folder, the user and the variables are as the format has them.
[ "$PWD" = /app ] && [ "$(id -u)" = 0 ] && [ "$FROM_IMAGE" = image ] && [ "$FROM_TASK" = task ] \
    && [ "$FROM_VERIFIER" = verifier ] && [ -z "$FROM_SOLUTION" ] && [ ! -e /solution/unseen ] \
    && echo 1 > /logs/verifier/reward.txt
