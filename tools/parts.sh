#!/usr/bin/env bash
# parts.sh [--page FILE] TARGET…: runs targets of the Makefile one after the other, also after one that failed. At the end it prints
# how long each took, how it ended, and which tests needed a second run. With --page, it renews the rows of these targets in
# FILE, a Markdown page. It fails if a target failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

page=
if [[ $1 == --page ]]; then
	page=$2
	shift 2
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
: >"$tmp/rows"

failed=0
for target; do
	printf '\n==== make %s\n' "$target"
	began=$SECONDS
	export LOCKER_SECOND_RUNS=$tmp/second.$target
	: >"$LOCKER_SECOND_RUNS"
	result=passed
	"${MAKE:-make}" --no-print-directory --keep-going "$target" || result=FAILED failed=1
	second=$(sort -u "$LOCKER_SECOND_RUNS" | paste -sd, - | sed 's/,/, /g')
	printf '%s\t%s\t%d\t%s\n' "$target" "$result" $((SECONDS - began)) "${second:--}" >>"$tmp/rows"
done

printf '\n%-24s %-8s %8s  %s\n' target result seconds 'needed a second run'
while IFS=$'\t' read -r target result took second; do
	printf '%-24s %-8s %8d  %s\n' "$target" "$result" "$took" "$second"
done <"$tmp/rows"
printf '%-24s %-8s %8d\n' all "$([[ $failed == 0 ]] && echo passed || echo FAILED)" "$SECONDS"

[[ -n $page ]] || exit "$failed"

# version COMMAND…: the first number with a dot that it prints.
version() {
	local out
	out=$(PATH=$PWD/.bin:$PATH "$@" 2>/dev/null) && [[ $out =~ [0-9]+(\.[0-9]+)+ ]] && echo "${BASH_REMATCH[0]}" || echo none
}

commit=$(git rev-parse --short HEAD)$(git diff --quiet HEAD -- . ":!$page" || echo ' and changes')
touch "$page"
grep '^| [a-z]' "$page" | grep -v '^| part ' >"$tmp/table" || true
while IFS=$'\t' read -r target result took second; do
	part=${target#nightly-}
	grep -v "^| $part |" "$tmp/table" >"$tmp/others" || true
	what=$(awk -F ' ## ' -v target="$target" '(" " $1) ~ "^( [a-z-]+)* " target "[ :]" { print $2 }' Makefile)
	printf '| %s | %s | %s | %d | %s | %s | %s |\n' \
		"$part" "$what" "$result" $(((took + 30) / 60)) "$second" "$commit" "$(date -u +%F)" >>"$tmp/others"
	mv "$tmp/others" "$tmp/table"
done <"$tmp/rows"
{
	cat <<-END
		# What was last run in full

		\`make nightly\` runs, in parts, the tests that take too long for each commit, and writes this page. \`make nightly PART=redlock\`
		runs one part and updates its row. A test that fails runs once more: the column *needed a second run* names the tests that passed only then.

		Last run on $(nproc) processors, $(go version | cut -d' ' -f3,4), with Redis $(version redis-server --version), Valkey $(version valkey-server --version), etcd $(version etcd --version),
		ZooKeeper $(version zookeeper-server --version), Kubernetes $(version kube-apiserver --version), PostgreSQL $(version postgres --version), MariaDB $(version mariadbd --version).

		| part | what | result | minutes | needed a second run | commit | date |
		|---|---|---|--:|---|---|---|
	END
	sort "$tmp/table"
} >"$tmp/page"
mv "$tmp/page" "$page"
exit "$failed"
