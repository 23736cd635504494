#!/bin/sh
cd /logs/verifier || exit 1
echo '{"reward": 0.5, "style": 1, "speed": 0.25}' > reward.json
