#!/bin/sh
# dist.sh DIRECTORY: the command locker for the systems that it compiles for, an archive each, and SHA256SUMS. The
# same commit and the same Go give the same bytes, on any Linux, so that anybody can check what was published. The version is
# that of the tag cmd/locker/v… on the commit; go build writes it into the binary.
set -eu

into=$1
cd "$(dirname "$0")/.."
[ -z "$(git status --porcelain)" ] || {
	echo "there are changes that are not committed: a version would not say what was built" >&2
	exit 1
}
tar --version 2>/dev/null | grep -q GNU || {
	echo "want GNU tar, whose archives can be the same twice" >&2
	exit 1
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
when=$(git log -1 --format=%ct)
tag=$(git tag --points-at HEAD --list 'cmd/locker/v*' --sort=-version:refname | sed 's,.*/,,;q')
version=${tag:-$(git rev-parse --short=12 HEAD)}

mkdir -p "$into"
rm -f "$into"/locker_* "$into"/SHA256SUMS
into=$(cd "$into" && pwd)
GOWORK=off "${GO:-go}" run -C cmd/locker . man >"$tmp/locker.1"
for platform in linux/amd64 linux/arm64 linux/arm linux/386 darwin/amd64 darwin/arm64 freebsd/amd64 windows/amd64 windows/arm64; do
	name=locker_${version}_$(echo $platform | tr / _)
	echo "building $name"
	mkdir "$tmp/$name"
	CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} GOWORK=off \
		"${GO:-go}" build -C cmd/locker -trimpath -buildvcs=true -ldflags='-s -w' -o "$tmp/$name/" .
	cp LICENSE cmd/locker/README.md "$tmp/locker.1" "$tmp/$name/"
	tar -C "$tmp" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$when" -cf - "$name" |
		gzip -n -9 >"$into/$name.tar.gz"
done
(cd "$into" && sha256sum locker_*.tar.gz >SHA256SUMS)
echo "they are in $into"
