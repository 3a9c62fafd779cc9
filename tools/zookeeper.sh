#!/bin/sh
# Puts ZooKeeper into directory $1: its jar files in zookeeper/, and a program zookeeper-server that
# runs them, which is what the tests look for. The jars come from Debian's or Ubuntu's packages, which
# apt fetches and verifies, and which are unpacked but not installed; or from the ZooKeeper at
# $ZOOKEEPER_HOME, if that is set. Nothing is started, and only a missing Java is installed.
set -eu

bin=$1
server=$bin/zookeeper-server
jars=$bin/zookeeper

[ -x "$server" ] && exit 0

fail() {
	echo "no ZooKeeper: $1." >&2
	echo "Install Java and ZooKeeper 3.6 or later (https://zookeeper.apache.org/releases.html, or" >&2
	echo "macOS: brew install zookeeper), set ZOOKEEPER_HOME to the directory that has its lib/" >&2
	echo "(Homebrew: \$(brew --prefix zookeeper)/libexec), and run this again." >&2
	exit 1
}

# Of all that ZooKeeper's package depends on, what a server without TLS, shell and web pages loads.
packages='libzookeeper-java libslf4j-java libdropwizard-metrics-java libsnappy-java'
needed='zookeeper zookeeper-jute slf4j-api slf4j-simple metrics-core snappy-java'

# Not `command -v`: macOS has a java that only says where to get one.
if ! java -version >/dev/null 2>&1; then
	. "$(dirname "$0")/apt.sh"
	apt_install default-jre-headless || fail "java is missing"
fi

mkdir -p "$bin"
# Beside its destination, so that the last steps are renames.
tmp=$(mktemp -d "$bin/zookeeper.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
mkdir "$tmp/jars" "$tmp/deb"

fetch() {
	# shellcheck disable=SC2086 # several words
	(cd "$tmp" && apt-get -qq -o "APT::Sandbox::User=$(id -un)" "$@" download $packages)
}

if [ -n "${ZOOKEEPER_HOME:-}" ]; then
	cp "$ZOOKEEPER_HOME"/lib/*.jar "$tmp/jars/" || fail "there are no jars in $ZOOKEEPER_HOME/lib"
else
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
		fail "it is fetched only where there is apt-get"
	echo "fetching ZooKeeper from the distribution's packages (3 MB), without installing it"
	if ! fetch 2>/dev/null; then
		# The machine's lists are missing or out of date. Lists of our own need no root.
		mkdir -p "$tmp/lists/partial"
		apt-get -qq -o "Dir::State::lists=$tmp/lists" -o "APT::Sandbox::User=$(id -un)" update ||
			fail "the package lists could not be fetched"
		fetch -o "Dir::State::lists=$tmp/lists" || fail "its packages could not be fetched"
	fi
	for package in "$tmp"/*.deb; do
		dpkg-deb -x "$package" "$tmp/deb"
	done
	for jar in $needed; do
		# Links to names with a version are followed.
		cp "$tmp/deb/usr/share/java/$jar.jar" "$tmp/jars/" || fail "its packages have changed"
	done
fi

# exec: who started this program signals Java by the same process number. SERVER_JVMFLAGS is called
# as it is in ZooKeeper's own zkServer.sh.
cat >"$tmp/zookeeper-server" <<'END'
#!/bin/sh
# Runs a ZooKeeper server: zookeeper-server zoo.cfg, or says which: zookeeper-server --version
jars="$(dirname "$0")/zookeeper/*"
if [ "${1:-}" = --version ]; then
	version=$(java -cp "$jars" org.apache.zookeeper.Version --short) && echo "ZooKeeper $version"
	exit
fi
exec java ${SERVER_JVMFLAGS:-} -cp "$jars" org.apache.zookeeper.server.quorum.QuorumPeerMain "$@"
END
chmod +x "$tmp/zookeeper-server"

version=$(java -cp "$tmp/jars/*" org.apache.zookeeper.Version --short 2>/dev/null) ||
	fail "what was found does not run with this Java"
case $version in
3.[0-5].*) fail "version $version is too old" ;;
esac

rm -rf "$jars"
mv "$tmp/jars" "$jars"
mv "$tmp/zookeeper-server" "$server"
echo "ZooKeeper $version is in $jars"
