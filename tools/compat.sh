#!/usr/bin/env bash
# compat.sh DIRECTORY SERVER [go test flags]: the tests of each adapter on SERVER, which tools/servers.sh has put into DIRECTORY, one
# after the other, and then a table of how it went. Output is left in DIRECTORY/*.log. It fails if one of them did.
set -euo pipefail

servers=$(cd "$1" && pwd)
only=$2
shift 2
cd "$(dirname "$0")/.."

table=
failed=0
row() { table+=$(printf '%-18s %-12s %s' "$1" "$2" "$3")$'\n'; }

# run SERVER PROGRAM ADAPTER…
run() {
	local server=$1 program=$2 adapter version result
	shift 2
	for adapter in "$@"; do
		if [[ ! -x $servers/$server/$program ]]; then
			row "$server" "$adapter" "skipped: it is not in $servers; tools/servers.sh says why"
			[[ -z ${CI:-} ]] || failed=1 # there it is to prove something
			continue
		fi
		version=$("$servers/$server/$program" --version 2>/dev/null || true)
		if [[ $version =~ [0-9]+(\.[0-9]+)+ ]]; then version=${BASH_REMATCH[0]}; else version='of no version'; fi
		echo "== $server ($version): ./$adapter"
		result=passed
		PATH=$servers/$server:$PATH LOCKER_NIGHTLY=1 LOCKER_REQUIRE_SERVERS=1 gotestsum --format=standard-verbose -- -count=1 -timeout=30m ${flags[@]+"${flags[@]}"} "./$adapter" \
			>"$servers/$server.$adapter.log" 2>&1 || { result=FAILED failed=1; }
		grep -E '^(--- FAIL|panic:|FAIL)' "$servers/$server.$adapter.log" || true
		row "$server $version" "$adapter" "$result, $(grep -c '^ *--- PASS' "$servers/$server.$adapter.log" || true) tests and subtests passed, of them $(grep -cE '^ *[a-z_]+\.go:[0-9]+: known deviation: ' "$servers/$server.$adapter.log" || true) as known deviations, $(grep -c '^ *--- SKIP' "$servers/$server.$adapter.log" || true) skipped"
		sed -n '/^=== SKIP/ { n; p; }' "$servers/$server.$adapter.log" | sort | uniq -c
	done
}

flags=("$@")
case $only in
redis-*) run "$only" redis-server redis redigo redlock ;;
valkey-*) run "$only" redis-server redis ;;
etcd-*) run "$only" etcd etcd ;;
zookeeper-*) run "$only" zookeeper-server zookeeper ;;
*) echo "no server has the name $only" >&2 && exit 2 ;;
esac
printf '\n%s' "$table"
exit $failed
