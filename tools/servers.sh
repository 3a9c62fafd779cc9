#!/bin/sh
# servers.sh DIRECTORY: the oldest and newest servers to be had, each in a folder of DIRECTORY, with the program's name as
# the tests look for it: who puts the folder first on the PATH tests with that server. Redis, Valkey, ZooKeeper and etcd's past come out
# of Debian's packages, which apt fetches and verifies, and which are unpacked, but not installed: for Redis and Valkey beside all
# that they need, the C library too; etcd's newest is built by Go. What is there stays; to fetch it anew, remove its folder. What is not to be had is said, and
# is no error: tools/compat.sh prints it as skipped.
set -eu

mkdir -p "$1"
servers=$(cd "$1" && pwd)

tmp=$(mktemp -d "$servers/tmp.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
. "$(dirname "$0")/apt.sh"

without() {
	echo "no $1: $2" >&2
}

# plan names all that a package needs.
plan() { private_apt "$1" -s --no-install-recommends install "$2"; }

# unpack SUITE FOLDER PACKAGE…: into FOLDER/root
unpack() {
	suite=$1
	folder=$2
	shift 2
	mkdir -p "$folder/debs"
	(cd "$folder/debs" && private_apt "$suite" download "$@") || return
	for deb in "$folder/debs"/*.deb; do
		dpkg-deb -x "$deb" "$folder/root" || return
	done
	rm -r "$folder/debs"
}

# native SUITE FOLDER PACKAGE FILE NAME: FILE of a package with its own C library, under NAME, for FILE may be several programs, by
# the name that it is called with. exec: who started it signals the server by the same process number.
native() {
	needs=$(plan "$1" "$3" | sed -n 's/^Inst \([^ ]*\) (.*/\1/p') || return
	# shellcheck disable=SC2086 # several words
	unpack "$1" "$2" $needs || return
	mkdir -p "$2/lib" "$2/program"
	find "$2/root" -path '*-linux-*/*.so*' ! -type d ! -path '*/*-linux-*/*/*' -exec cp -a {} "$2/lib/" \;
	mv "$2/root/$4" "$2/program/$5" || return
	rm -rf "$2/root"
	cat >"$2/$5" <<END
#!/bin/sh
here=\$(cd "\$(dirname "\$0")" && pwd)
for loader in "\$here"/lib/ld-linux*.so.*; do
	exec "\$loader" --library-path "\$here/lib" "\$here/program/$5" "\$@"
done
END
	chmod +x "$2/$5"
	"$2/$5" --version >/dev/null
}

redis() { native "$1" "$2" redis-tools usr/bin/redis-check-rdb redis-server; }

# Tests of Redis's adapters are to take it for a Redis.
valkey() {
	native "$1" "$2" valkey-tools usr/bin/valkey-check-rdb valkey-server && ln -s valkey-server "$2/redis-server"
}

# It needs nothing but a C library, of any age.
etcd() {
	unpack "$1" "$2" etcd-server && mv "$2/root/usr/bin/etcd" "$2/etcd" && rm -r "$2/root" && "$2/etcd" --version >/dev/null
}

zookeeper() {
	unpack "$1" "$2" libzookeeper-java libslf4j-java libdropwizard-metrics-java libsnappy-java || return
	mkdir "$2/zookeeper"
	for jar in zookeeper zookeeper-jute slf4j-api slf4j-simple metrics-core snappy-java; do
		cp "$2/root/usr/share/java/$jar.jar" "$2/zookeeper/" || return
	done
	rm -r "$2/root"
	cp "$servers/../zookeeper-server" "$2/"
}

# package NAME SUITE COMMAND
package() {
	[ ! -e "$servers/$1" ] || return 0
	debian || {
		without "$1" "it comes from Debian's packages, by apt and the keys in $keyring"
		return 0
	}
	echo "fetching $1 from Debian $2, without installing it"
	mkdir "$tmp/$1.new"
	if lists "$2" && "$3" "$2" "$tmp/$1.new"; then
		mv "$tmp/$1.new" "$servers/$1"
	else
		without "$1" "its packages of Debian $2 could not be fetched, or have changed"
	fi
}

# Of its newest minor version, the newest that there is.
newest_etcd() {
	[ ! -e "$servers/$1" ] || return 0
	echo "building $1"
	mkdir "$tmp/$1.new" "$tmp/$1.module"
	if (cd "$tmp/$1.module" && "${GO:-go}" mod init etcd && "${GO:-go}" get "go.etcd.io/etcd/server/v3@$2" &&
		GOWORK=off "${GO:-go}" build -trimpath -ldflags='-s -w' -o "$tmp/$1.new/etcd" go.etcd.io/etcd/server/v3); then
		mv "$tmp/$1.new" "$servers/$1"
	else
		without "$1" "it could not be built"
	fi
}

package redis-oldest bullseye redis
package redis-newest sid redis
package valkey-newest sid valkey
package etcd-oldest bookworm etcd
newest_etcd etcd-newest v3.7
package zookeeper-newest sid zookeeper
