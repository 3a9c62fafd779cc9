# For scripts that source it: Debian's packages.

# apt_install PACKAGE …: onto the machine, as root or by sudo. It starts nothing of theirs but what they do themselves.
apt_install() {
	command -v apt-get >/dev/null || return
	as_root=
	if [ "$(id -u)" -ne 0 ]; then
		as_root=sudo
		command -v sudo >/dev/null || {
			echo "as root, run: apt-get install $*" >&2
			return 1
		}
	fi
	echo "installing $*"
	$as_root apt-get update -q || echo "going on with the package lists that there are"
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

# Below are packages of other suites than the machine's, without a change to what it has configured. The caller has made $tmp.

keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# debian: whether they are to be had
debian() {
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null && [ -r "$keyring" ] && [ -n "$(mirror)" ]
}

# mirror is where the machine has its own packages from.
mirror() {
	# shellcheck disable=SC2016 # apt's own variable
	apt-get indextargets --format '$(REPO_URI) $(LABEL)' 'Identifier: Packages' |
		awk '$2 == "Debian" || $2 == "" && $1 !~ /security/ { print $1; exit }' # no label: before the first update
}

# private_apt SUITE …: apt-get with sources, lists and a cache of its own, as on a machine on which nothing is installed: it would
# plan for what is missing, and download the version that is there.
private_apt() {
	suite=$1
	shift
	apt-get -qq -o "Dir::Etc::sourcelist=$tmp/$suite/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::status=/dev/null -o "Dir::State::lists=$tmp/$suite/lists" -o "Dir::Cache=$tmp/$suite/cache" \
		-o "APT::Sandbox::User=$(id -un)" -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
		-o Acquire::Retries=0 -o Acquire::http::Timeout=20 -o APT::Update::Error-Mode=any "$@"
}

# lists SUITE: fetches what packages a suite has, once.
lists() {
	[ ! -e "$tmp/$1" ] || return 0
	mkdir -p "$tmp/$1/lists/partial" "$tmp/$1/cache/archives/partial"
	echo "deb [signed-by=$keyring] $(mirror) $1 main" >"$tmp/$1/sources.list"
	private_apt "$1" update
}
