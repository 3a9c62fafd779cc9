#!/bin/sh
# release.sh VERSION: one commit and the tags of a release, v0.1.0 say; pushes nothing. All modules that others use have the
# version of the root, whose tag comes last, for it starts the workflow that publishes the command.
set -eu

version=$1
module=github.com/go-locker/locker
cd "$(dirname "$0")/.."

fail() {
	echo "no release: $1" >&2
	exit 1
}

echo "$version" | grep -Eq '^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$' || fail "want a version as v0.1.0 or v0.1.0-rc.1, not $version"
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
grep -q "^## $version\b" CHANGELOG.md || fail "CHANGELOG.md has no section ## $version"
[ -z "$(git tag --list "$version")" ] || fail "$version is there"

# Those who import a nested module get the root by this requirement; its replace counts here alone.
for mod in $(git ls-files '*/go.mod'); do
	if grep -q "$module v" "$mod"; then
		"${GO:-go}" mod edit -require="$module@$version" "$mod"
	fi
done
git commit -q --allow-empty -am "Release $version"
for tag in "otel/$version" "cmd/locker/$version" "$version"; do
	git tag -a -m "$tag" "$tag"
done
echo "look at it, then: git push origin HEAD otel/$version cmd/locker/$version && git push origin $version"
