#!/bin/sh
# release.sh VERSION: the commits and tags of a release, v0.1.0 say; pushes nothing. If it fails, it takes back what it did.
#
# The root, kubernetes, lockervet, otel, s3, sql, cmd/locker and the integrations get one version. On main, all but the root replace it by a folder, but go install
# refuses a go.mod that replaces anything. So there are four commits: one for the root's tag; one for the tags of the others, without
# replace and with the root's hash in go.sum; one for cmd/locker, which needs those of kubernetes, s3 and sql, too; and one that reverts the two.
set -eu

version=$1
module=github.com/go-locker/locker
go=${GO:-go}
cd "$(dirname "$0")/.."
# Those that need a backend of a module of its own come after that.
commands=cmd/locker
others="kubernetes lockervet otel s3 sql $(echo integrations/*)"

fail() {
	echo "no release: $1" >&2
	exit 1
}

echo "$version" | grep -Eq '^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$' || fail "want a version as v0.1.0 or v0.1.0-rc.1, not $version"
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
grep -q "^## $version\b" CHANGELOG.md || fail "CHANGELOG.md has no section ## $version"
for tag in "$version" $(printf "%s/$version " $others $commands); do
	[ -z "$(git tag --list "$tag")" ] || fail "the tag $tag exists"
done

before=$(git rev-parse HEAD)
scratch=$(mktemp -d)
touch "$scratch/log"
finish() {
	status=$?
	GOMODCACHE=$scratch/modules "$go" clean -modcache
	if [ $status != 0 ]; then
		cat "$scratch/log" >&2
		for tag in $(git tag --contains "$before" --list "$version" "*/$version"); do
			git tag --delete "$tag" >&2
		done
		git reset -q --hard "$before"
	fi
	rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 1' INT TERM

for mod in $(git ls-files '*/go.mod'); do
	if grep -q "$module v" "$mod"; then
		"$go" mod edit -require="$module@$version" "$mod"
	fi
	for backend in kubernetes s3 sql; do
		if grep -q "$module/$backend v" "$mod"; then
			"$go" mod edit -require="$module/$backend@$version" "$mod"
		fi
	done
done
git commit -q --allow-empty -am "Release $version"
git tag -a -m "$version" "$version"

# tidy DIRECTORY finds the hashes of what is released: it fetches the tags above, for which git reads this clone instead of GitHub. It has a module cache
# of its own, lest yours keep a version that nobody published.
tidy() {
	env GOMODCACHE="$scratch/modules" GOPROXY="file://$("$go" env GOMODCACHE)/cache/download,$("$go" env GOPROXY)" GOWORK=off GOPRIVATE="$module,$module/*" \
		GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$PWD.insteadOf" GIT_CONFIG_VALUE_0="https://$module" \
		"$go" mod tidy -C "$1" >"$scratch/log" 2>&1
}
for dir in $others; do
	"$go" mod edit -dropreplace="$module" "$dir/go.mod"
	tidy "$dir"
done
git commit -q -am "$others $version: require the root's release, without replace"
for dir in $others; do
	git tag -a -m "$dir/$version" "$dir/$version"
done

for dir in $commands; do
	"$go" mod edit -dropreplace="$module" -dropreplace="$module/kubernetes" -dropreplace="$module/s3" -dropreplace="$module/sql" "$dir/go.mod"
	tidy "$dir"
done
git commit -q -am "$commands $version: require the releases, without replace"
for dir in $commands; do
	git tag -a -m "$dir/$version" "$dir/$version"
done

git revert --no-commit HEAD~2..HEAD
git commit -q -m "$others $commands: replace what is here by its folder again"
echo "look at the last four commits, then: git push origin HEAD $(printf "%s/$version " $others $commands)&& git push origin $version"
