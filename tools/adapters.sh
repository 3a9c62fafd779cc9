#!/bin/sh
# Puts what the adapters in bench/thirdparty/adapters judge into directory $1/adapters: python/, out of Debian's packages, which apt fetches and
# verifies and which are unpacked but not installed, and node/, by npm from package-lock.json there. Tests do without what is missing, so that
# nothing here is an error.
set -eu

into=$1/adapters
root=$(cd "$(dirname "$0")/.." && pwd)
lock=$root/bench/thirdparty/adapters/node

without() { echo "no $1: $2. The tests of its adapters will be skipped" >&2; }

python() {
	[ ! -d "$into/python" ] || return 0
	[ -x /usr/bin/python3 ] || { without "Python libraries" "there is no /usr/bin/python3"; return 0; }
	rm -rf "$into/python.new"
	for package in python3-redis python3-kazoo; do
		"$root/tools/unpack.sh" "$package" "$into/python.new" '^python3$|^python3-minimal$|^libpython' || {
			without "Python libraries" "$package could not be fetched"
			return 0
		}
	done
	mv "$into/python.new" "$into/python"
}

node() {
	! cmp -s "$lock/package-lock.json" "$into/node/package-lock.json" || return 0
	command -v npm >/dev/null || { without "Node.js libraries" "there is no npm"; return 0; }
	rm -rf "$into/node" "$into/node.new"
	mkdir "$into/node.new"
	cp "$lock/package.json" "$lock/package-lock.json" "$into/node.new/"
	echo "fetching Node.js libraries by npm, without running scripts of theirs"
	(cd "$into/node.new" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) || {
		without "Node.js libraries" "npm could not fetch them"
		return 0
	}
	mv "$into/node.new" "$into/node"
}

mkdir -p "$into"
python
node
