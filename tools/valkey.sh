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

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null && [ -r "$keyring" ] ||
	without "this is no Debian, whose package we know how to use; install Valkey yourself"
case $(dpkg --print-architecture) in
amd64 | arm64) ;;
*) without "we have not tried Debian's package on this architecture; install Valkey yourself" ;;
esac

mkdir -p "$bin"
# Beside its destination, so that the last step is a rename.
tmp=$(mktemp -d "$bin/valkey.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial" "$tmp/deb"
echo "deb [signed-by=$keyring] http://deb.debian.org/debian bookworm-backports main" >"$tmp/sources.list"

# apt with sources and lists of its own. What the machine has configured stays as it is.
private_apt() {
	apt-get -qq -o "Dir::Etc::sourcelist=$tmp/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o "Dir::State::lists=$tmp/lists" -o "Dir::Cache=$tmp/cache" \
		-o "APT::Sandbox::User=$(id -un)" -o Acquire::Languages=none \
		-o Acquire::Retries=0 -o Acquire::http::Timeout=20 -o APT::Update::Error-Mode=any "$@"
}

echo "fetching valkey-server from Debian's package valkey-tools (1 MB), without installing it"
private_apt update || without "Debian's package list could not be fetched"
(cd "$tmp" && private_apt download valkey-tools) || without "Debian's package could not be fetched"
dpkg-deb -x "$tmp"/valkey-tools_*.deb "$tmp/deb" || without "the package could not be unpacked"

# The program is the server, or checks a file, by the name that it is called with.
mv "$tmp/deb/usr/bin/valkey-check-rdb" "$tmp/valkey-server" || without "the package has changed"
"$tmp/valkey-server" --version | grep -q 'server v=' ||
	without "Debian's program does not run here; perhaps it wants the libraries of redis-tools"
mv "$tmp/valkey-server" "$server"
