#!/usr/bin/env bash
# budget.sh [-lower]: counts what git tracks, and fails where it is more than .ci/budget allows. With -lower, it writes the
# numbers that have become smaller into .ci/budget.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# lines PATHSPEC…: of all files that are tracked and there.
lines() { tracked "$@" | xargs -0 -r cat | wc -l; }
tracked() { git ls-files -z --deduplicate "$@" | while IFS= read -r -d '' file; do [[ ! -f $file ]] || printf '%s\0' "$file"; done; }

count() {
	case $1 in
	files) tracked | tr -dc '\0' | wc -c ;;
	code) lines '*.go' ':!*_test.go' ;;
	tests) lines '*_test.go' ;;
	words) tracked '*.md' | xargs -0 -r cat | wc -w ;;
	exported) lines 'api/*.txt' ;;
	modules) tracked '*go.mod' | tr -dc '\0' | wc -c ;;
	*) echo "budget.sh: .ci/budget has $1, which nobody counts" >&2; return 1 ;;
	esac
}

read -ra budget <.ci/budget
over=0
lowered=()
for ((i = 0; i < ${#budget[@]}; i += 2)); do
	what=${budget[i]} limit=${budget[i + 1]}
	count=$(count "${budget[i]}")
	note=
	if ((count > limit)); then
		note="  $((count - limit)) too many: take away what this replaces, or what repeats"
		over=1
	fi
	printf '%-10s %7d of %7d%s\n' "$what" "$count" "$limit" "$note"
	lowered+=("$what" $((count < limit ? count : limit)))
done
[[ ${1:-} != -lower ]] || printf '%s %s   %s %s   %s %s   %s %s   %s %s   %s %s\n' "${lowered[@]}" >.ci/budget
exit "$over"
