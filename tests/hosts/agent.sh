#!/usr/bin/env bash
# agent.sh HOST COMMAND...: what ssh would do, for hosts that network.sh made: runs the words as one line of sh there.
while [[ $1 == -* ]]; do shift; done
host=$1
shift
[ ! -e "$CLV_HOSTS_INSIDE/$host.cut" ] || { echo "no route to $host" >&2; exit 255; }
exec nsenter --target "$(cat "$CLV_HOSTS_INSIDE/$host")" --net --uts --mount --wd="$PWD" -- sh -c "$*"
