#!/usr/bin/env bash
# test.sh PACKAGES [flags for go test]: tests on real servers; one that is missing is a failure. If LOCKER_NIGHTLY is set, they are
# those of make nightly; if LOCKER_RACE is set, they run under the race detector. A test that fails runs once more, alone, because
# machines stand still. It is printed then, and added to the file LOCKER_SECOND_RUNS. What such a pause does not explain
# counts at once: a data race, and a promise of ours that the conformance suite has seen broken for certain.
set -euo pipefail

packages=$1
shift
log=$(mktemp)
second=$(mktemp)
trap 'rm -f "$log" "$second"' EXIT

# Never from the test cache, which does not see that a server on this machine has changed. vet is one of the linters.
flags=(-count=1 -vet=off '-ldflags=-s -w')
[[ -z ${LOCKER_RACE:-} ]] || flags+=(-race)
LOCKER_REQUIRE_SERVERS=1 gotestsum --format=standard-quiet \
	--rerun-fails=1 --rerun-fails-max-failures=12 --rerun-fails-abort-on-data-race \
	--rerun-fails-report="$second" --packages="$packages" -- "${flags[@]}" "$@" | tee "$log"
if [[ -s $second ]]; then
	printf 'needed a second run:\n%s\n' "$(cat "$second")"
	sed -n 's/: .*//p' "$second" >>"${LOCKER_SECOND_RUNS:-/dev/null}"
fi

# Of what failed, what the suite says it has seen, but for what took too long, or counts because several trials saw it, or any. What another
# library breaks by luck, once in a while, is no fault of ours.
certain=$(awk '
	/^=== Failed$/ { failed = 1 }
	/^=== FAIL: / { ours = $3 != "thirdparty" }
	failed && ours && /^ *seen: / && !/seen: (in each of |in all of |in [0-9]+ of [0-9]+ trials; |.* did not (end|return) within )/
' "$log")
if [[ -n $certain ]]; then
	printf 'a second run is no excuse for this:\n%s\n' "$certain" >&2
	exit 1
fi
