#!/bin/sh
# Puts PgBouncer into directory $1: what its packages hold in pgbouncer.d/, and a program pgbouncer that runs it. Nothing is
# installed or started.
set -eu

bin=$1
program=$bin/pgbouncer
here=$(dirname "$0")

command -v pgbouncer >/dev/null && exit 0
[ -x "$program" ] && exit 0

fail() {
	echo "no PgBouncer: $1." >&2
	echo "Install PgBouncer 1.18 or later so that pgbouncer is on your PATH" >&2
	echo "(macOS: brew install pgbouncer, Fedora: dnf install pgbouncer, Alpine: apk add pgbouncer)." >&2
	exit 1
}

mkdir -p "$bin"
# Where Debian installs it, on no PATH but root's.
if [ -x /usr/sbin/pgbouncer ]; then
	ln -sf /usr/sbin/pgbouncer "$program"
	echo "linked $program to /usr/sbin/pgbouncer"
	exit 0
fi

# Beside its destination, so that the last steps are renames.
tmp=$(mktemp -d "$bin/pgbouncer.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM

# What sets up a service is left out.
"$here/unpack.sh" pgbouncer "$tmp/root" '^(postgresql-common.*|postgresql-client.*|python3.*|libpython3.*|perl.*|lib.*-perl|ssl-cert|openssl)$' ||
	fail "its packages could not be had"

# exec: who started this program signals the server by the same process number.
cat >"$tmp/pgbouncer" <<'END'
#!/bin/sh
# Runs PgBouncer.
root=$(dirname "$0")/pgbouncer.d
libraries=$(echo "$root"/usr/lib/*-linux-gnu*)
LD_LIBRARY_PATH=$libraries exec "$root/usr/sbin/pgbouncer" "$@"
END
chmod +x "$tmp/pgbouncer"

rm -rf "$bin/pgbouncer.d"
mv "$tmp/root" "$bin/pgbouncer.d"
mv "$tmp/pgbouncer" "$program"
version=$("$program" --version | head -n 1) || {
	rm "$program"
	fail "what was found does not run here"
}
echo "$version is in $bin/pgbouncer.d"
