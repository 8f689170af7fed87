#!/bin/sh
# The password goes into a file: arguments can be read by every process of the container's host.
set -eu
umask 077
cat >/tmp/valkey.conf <<CONF
requirepass $VALKEY_PASSWORD
dir /data
appendonly yes
save ""
maxmemory-policy noeviction
CONF
exec valkey-server /tmp/valkey.conf
