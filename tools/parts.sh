#!/usr/bin/env bash
# parts.sh TARGET…: runs targets of the Makefile one after the other, also after one that failed. At the end it prints
# how long each took, how it ended, and which tests needed a second run. It fails if a target failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

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

exit "$failed"
