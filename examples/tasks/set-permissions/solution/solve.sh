#!/bin/sh
set -e
cd /srv/site
find . -type d -exec chmod 0755 {} +
find . -type f -exec chmod 0644 {} +
find . -type f -name '*.sh' -exec chmod 0755 {} +
find private -type d -exec chmod 0700 {} +
find private -type f -exec chmod 0600 {} +
chmod 1777 upload
