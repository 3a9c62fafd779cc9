#!/bin/sh
# Puts Valkey 8 into directory $1 where that is easy: out of a package of Debian's, which is fetched
# with apt, signatures and all, and unpacked, but not installed. Tests do without it elsewhere, so
# that nothing here is an error.
set -eu

bin=$1
server=$bin/valkey-server

command -v valkey-server >/dev/null && exit 0
[ -x "$server" ] && exit 0

without() {
	echo "no valkey-server: $1. Its tests will be skipped" >&2
	exit 0
}

mkdir -p "$bin"
# Beside its destination, so that the last step is a rename.
tmp=$(mktemp -d "$bin/valkey.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
. "$(dirname "$0")/apt.sh"

debian || without "this is no Debian, whose package we know how to use; install Valkey yourself"
case $(dpkg --print-architecture) in
amd64 | arm64) ;;
*) without "we have not tried Debian's package on this architecture; install Valkey yourself" ;;
esac

echo "fetching valkey-server from Debian's package valkey-tools (1 MB), without installing it"
suite=bookworm-backports
lists $suite || without "Debian's package list could not be fetched"
mkdir "$tmp/deb"
(cd "$tmp" && private_apt $suite download valkey-tools) || without "Debian's package could not be fetched"
dpkg-deb -x "$tmp"/valkey-tools_*.deb "$tmp/deb" || without "the package could not be unpacked"

# The program is the server, or checks a file, by the name that it is called with.
mv "$tmp/deb/usr/bin/valkey-check-rdb" "$tmp/valkey-server" || without "the package has changed"
"$tmp/valkey-server" --version | grep -q 'server v=' ||
	without "Debian's program does not run here; perhaps it wants the libraries of redis-tools"
mv "$tmp/valkey-server" "$server"
