#!/bin/sh
# Puts MariaDB's server into directory $1: what its packages hold in mariadb/, and a program mariadbd that runs it. Nothing is
# installed or started.
set -eu

bin=$1
server=$bin/mariadbd
here=$(dirname "$0")

command -v mariadbd >/dev/null && exit 0
[ -x "$server" ] && exit 0

fail() {
	echo "no MariaDB: $1." >&2
	echo "Install MariaDB 10.6 or later so that mariadbd is on your PATH" >&2
	echo "(macOS: brew install mariadb, Fedora: dnf install mariadb-server, Alpine: apk add mariadb)." >&2
	exit 1
}

mkdir -p "$bin"
# Where Debian installs it, on no PATH but root's.
if [ -x /usr/sbin/mariadbd ]; then
	ln -sf /usr/sbin/mariadbd "$server"
	echo "linked $server to /usr/sbin/mariadbd"
	exit 0
fi

# Beside its destination, so that the last steps are renames.
tmp=$(mktemp -d "$bin/mariadb.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM

"$here/unpack.sh" mariadb-server-core "$tmp/root" || fail "its packages could not be had"

# exec: who started this program signals the server by the same process number. What comes later on the command line wins, but
# --no-defaults has to come first, for what this machine has configured is for a server of its own.
cat >"$tmp/mariadbd" <<'END'
#!/bin/sh
# Runs MariaDB's server.
root=$(dirname "$0")/mariadb
libraries=$(echo "$root"/usr/lib/*-linux-gnu*)
[ "${1:-}" != --no-defaults ] || shift
LD_LIBRARY_PATH=$libraries exec "$root/usr/sbin/mariadbd" --no-defaults \
	--basedir="$root/usr" --lc-messages-dir="$root/usr/share/mysql" --character-sets-dir="$root/usr/share/mysql/charsets" "$@"
END
chmod +x "$tmp/mariadbd"

rm -rf "$bin/mariadb"
mv "$tmp/root" "$bin/mariadb"
mv "$tmp/mariadbd" "$server"
version=$("$server" --version) || {
	rm "$server"
	fail "what was found does not run here"
}
echo "$version is in $bin/mariadb"
