#!/bin/sh
# unpack.sh PACKAGE DIRECTORY [LEAVE]: unpacks a package of Debian's or Ubuntu's into a directory, and beside it those that it depends on
# and that this machine has not got, but for names that match the pattern LEAVE. Apt fetches and verifies them; nothing is
# installed or started, so that none of it needs root.
set -eu

package=$1
into=$2
leave=${3:-^$}

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
	echo "packages are fetched only where there is apt-get" >&2
	exit 1
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
lists=

# shellcheck disable=SC2086 # two words, or none
apt() { apt-get -qq -o "APT::Sandbox::User=$(id -un)" $lists "$@"; }

fetch() {
	# What apt would install, not what it would bring up to date: "Inst name (version …" and "Inst name [old] (version …".
	apt -s --no-install-recommends install "$package" >"$tmp/plan" || return
	names=$(sed -n 's/^Inst \([^ ]*\) (.*/\1/p' "$tmp/plan" | grep -Ev "$leave") || return
	# shellcheck disable=SC2086 # several words
	(cd "$tmp" && apt download $names)
}

echo "fetching $package from the distribution's packages, without installing it"
if ! fetch 2>/dev/null; then
	# The machine's lists are missing or out of date. Lists of our own need no root.
	mkdir -p "$tmp/lists/partial"
	lists="-o Dir::State::lists=$tmp/lists"
	apt update
	fetch
fi
for deb in "$tmp"/*.deb; do
	dpkg-deb -x "$deb" "$into"
done
