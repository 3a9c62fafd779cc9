#!/usr/bin/env bash
# bare.sh: `go test` as somebody types it who has just cloned the repository, without what make setup has put into .bin/, and so
# without any server that is not on the machine's own PATH. Only packages whose tests can start a server know the difference: make
# test has run the others, such as the suite on memory. sql/mysql is here because only make nightly runs its tests on a server.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

says=$(mktemp)
trap 'rm -f "$says"' EXIT
path=$(printf %s "$PATH" | tr : '\n' | grep -vFx "$PWD/.bin" | paste -sd:)
bare() { env -u CI -u LOCKER_NIGHTLY -u LOCKER_REQUIRE_SERVERS LOCKER_BARE=1 PATH="$path" go test -count=1 "$@" 2>&1; }

began=$SECONDS
go list -test -f '{{.ForTest}} {{.Deps}}' ./... | sed -n 's/^\([^ ]\+\) .*internal\/test\/testserver.*/\1/p' | sort -u >"$says"
mapfile -t packages <"$says"
bare "${packages[@]}" | tee "$says"
(cd sql/mysql && bare ./...)
echo "go test without servers: $((SECONDS - began)) s"
for server in redis-server etcd zookeeper-server; do
	PATH=$path command -v "$server" >/dev/null || grep -q "^  $server " "$says" ||
		{ echo "nothing says that $server was missing" >&2; exit 1; }
done
