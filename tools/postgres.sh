#!/bin/sh
# Puts PostgreSQL's programs postgres and initdb into directory $1: links to those of this machine, or programs that run what its
# packages hold, in postgresql/. Nothing is installed or started.
set -eu

bin=$1
here=$(dirname "$0")

command -v postgres >/dev/null && command -v initdb >/dev/null && exit 0
[ -x "$bin/postgres" ] && [ -x "$bin/initdb" ] && exit 0

fail() {
	echo "no PostgreSQL: $1." >&2
	echo "Install PostgreSQL 13 or later so that postgres and initdb are on your PATH" >&2
	echo "(macOS: brew install postgresql, Fedora: dnf install postgresql-server, Alpine: apk add postgresql)." >&2
	exit 1
}

mkdir -p "$bin"
# Debian and its relatives have it on no PATH, a directory for each version.
for dir in /usr/lib/postgresql/*/bin; do
	[ -x "$dir/postgres" ] && [ -x "$dir/initdb" ] && installed=$dir
done
if [ -n "${installed:-}" ]; then
	ln -sf "$installed/postgres" "$installed/initdb" "$bin/"
	echo "linked $bin/postgres to $installed/postgres"
	exit 0
fi

command -v apt-cache >/dev/null || fail "it is fetched only where there is apt-get"

# Beside its destination, so that the last steps are renames.
tmp=$(mktemp -d "$bin/postgresql.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM

# The package of that name stands for the distribution's version of it, and depends on it. It is left out itself, as are the
# compiler for queries, of 100 MB, and what sets up a service.
service='postgresql|postgresql-common.*|postgresql-client.*|ssl-cert|openssl|sysstat|perl.*|libperl.*|lib.*-perl'
"$here/unpack.sh" postgresql "$tmp/root" "^($service|libllvm.*|tzdata|locales)\$" ||
	fail "its packages could not be had"
for dir in "$tmp"/root/usr/lib/postgresql/*/bin; do
	[ -x "$dir/postgres" ] || fail "its packages have changed"
	version=$(basename "$(dirname "$dir")")
done

# exec: who started this program signals the server by the same process number.
for program in postgres initdb; do
	cat >"$tmp/$program" <<END
#!/bin/sh
# Runs PostgreSQL's $program.
root=\$(dirname "\$0")/postgresql
libraries=\$(echo "\$root"/usr/lib/*-linux-gnu*)
LD_LIBRARY_PATH=\$libraries exec "\$root/usr/lib/postgresql/$version/bin/$program" "\$@"
END
	chmod +x "$tmp/$program"
done

rm -rf "$bin/postgresql"
mv "$tmp/root" "$bin/postgresql"
mv "$tmp/initdb" "$tmp/postgres" "$bin/"
version=$("$bin/postgres" --version) && "$bin/initdb" --version >/dev/null || {
	rm "$bin/postgres" "$bin/initdb"
	fail "what was found does not run here"
}
echo "$version is in $bin/postgresql"
