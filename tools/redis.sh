#!/bin/sh
# Makes redis-server available to the tests: as found on the PATH, or as a link in directory $1.
set -eu

bin=$1
server=$bin/redis-server

command -v redis-server >/dev/null && exit 0
[ -x "$server" ] && exit 0

. "$(dirname "$0")/apt.sh"

# Debian's and Ubuntu's package redis-server is a service on port 6379 around a program that
# redis-tools already contains: its redis-check-rdb is the server, which goes by the name that it is
# called with. So redis-tools and a link are all that is needed, and no service gets started on this
# machine.
program=/usr/bin/redis-check-rdb

if [ ! -x "$program" ]; then
	apt_install redis-tools || {
		echo "redis-server is missing. Install Redis 7 or later so that it is on your PATH" >&2
		echo "(macOS: brew install redis, Fedora: dnf install redis, Alpine: apk add redis)." >&2
		exit 1
	}
fi

mkdir -p "$bin"
ln -sf "$program" "$server"
if ! "$server" --version | grep -q '^Redis server'; then
	rm "$server"
	echo "$program is no Redis server here. Install the package redis-server instead;" >&2
	echo "it starts a service on port 6379, which the tests do not use." >&2
	exit 1
fi
echo "linked $server to $program"
