#!/usr/bin/env bash
# bare.sh: `go test ./...` in the root, as somebody types it who has just cloned the repository: without what make setup has put
# into .bin/, and so without any server that is not on the machine's own PATH. Then the same in sql/mysql, whose tests on a server
# only make nightly runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$tree" 2>/dev/null || true # but what was deleted
path=$(printf %s "$PATH" | tr : '\n' | grep -vFx "$PWD/.bin" | paste -sd:)

cd "$tree"
began=$SECONDS
bare() { env -u CI -u LOCKER_NIGHTLY -u LOCKER_REQUIRE_SERVERS PATH="$path" go test -count=1 ./... 2>&1; }
bare | tee "$tree/.says"
(cd sql/mysql && bare)
echo "go test ./... without servers: $((SECONDS - began)) s"
for server in redis-server etcd zookeeper-server; do
	PATH=$path command -v "$server" >/dev/null || grep -q "^  $server " "$tree/.says" ||
		{ echo "nothing says that $server was missing" >&2; exit 1; }
done
