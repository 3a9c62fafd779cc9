#!/bin/sh
# Makes a C compiler available, which the race detector is linked with.
set -eu

cc=$("${GO:-go}" env CC)
command -v "${cc%% *}" >/dev/null && exit 0

. "$(dirname "$0")/apt.sh"
apt_install gcc libc6-dev || {
	echo "there is no C compiler $cc. Install one, gcc or clang, which servers whose clocks tests move, and the race detector, are built with" >&2
	exit 1
}
