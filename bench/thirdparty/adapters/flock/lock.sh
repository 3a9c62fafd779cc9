#!/bin/bash
# flock(1) of util-linux, for the conformance suite: a lock of the processes of one machine.
#
# What it is by default, and here: flock(2) on a file, which waits without a limit unless -w says how many seconds, and ends with the
# last process that has the file open. It has no TTL, no extension, no token, and no server. The file of a lock is never deleted. The
# same file descriptor is granted a lock that it has already: a Locker here looks first.
#
# One process serves one Locker. Names are hashed as they stand in the request.

set -u
dir=${LOCKER_FLOCK_DIR:?the folder of the files}
holds=

say() { printf '%s\n' "$1"; }
answer() { say "{\"id\":$id,\"result\":\"$1\"}"; }

# acquire OPTION …: flock says 1 if another has the lock.
acquire() {
	if [ -n "$holds" ]; then
		sleep "${limit:-0}"
		answer held
	elif flock "$@" 9; then
		holds=yes
		answer ok
	else
		answer held
	fi
}

say "{\"protocol\":1,\"name\":\"$(flock --version | tr -d '"')\",\"capabilities\":[\"lock\",\"try\",\"unlock\"]}"
while IFS= read -r line; do
	id=${line#*\"id\":} id=${id%%,*}
	op=${line#*\"op\":\"} op=${op%%\"*}
	limit=
	[[ $line =~ \"limit_ms\":([0-9]+) ]] && printf -v limit '%d.%03d' $((BASH_REMATCH[1] / 1000)) $((BASH_REMATCH[1] % 1000))
	case $op in
	open)
		name=${line#*\"name\":} name=${name%,\"ttl_ms\"*}
		if [ "$name" = '""' ]; then
			say "{\"id\":$id,\"result\":\"error\",\"error\":\"the name is empty\"}"
			continue
		fi
		file=$(printf '%s' "$name" | sha256sum)
		exec 9>"$dir/${file%% *}"
		holds=
		answer ok
		;;
	lock) acquire ${limit:+-w "$limit"} ;;
	try) acquire -n ;;
	unlock)
		if [ -z "$holds" ]; then
			answer not-held
		else
			flock -u 9
			holds=
			answer ok
		fi
		;;
	close)
		exec 9>&-
		answer ok
		;;
	*) say "{\"id\":$id,\"result\":\"error\",\"error\":\"no such operation: $op\"}" ;;
	esac
done
