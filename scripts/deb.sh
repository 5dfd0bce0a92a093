#!/usr/bin/env bash
# A Debian package of the command, its manual and completions, in target/debian. PLAT is the command that goes into it, OUT the
# directory of the package, COMPRESSION how it is packed.
set -euo pipefail
cd "$(dirname "$0")/.."
plat=${PLAT:-${CARGO_TARGET_DIR:-target}/release/plat}
out=${OUT:-target/debian}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
arch=${ARCH:-$(dpkg --print-architecture)}
# The time of all files: that of the commit, so that the same source gives the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d "${TMPDIR:-/tmp}/platfs-deb.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
own=packaging/debian
umask 022
make -s install-files PLAT="$plat" PREFIX=/usr HELPERS=/usr/sbin DESTDIR="$root"
strip --strip-unneeded "$root/usr/bin/plat"
install -D -m 755 $own/plat-fsck-names "$root/usr/sbin/plat-fsck-names"
install -m 644 $own/plat-fsck-names.8 "$root/usr/share/man/man8/"
# Debian's zsh looks in a directory of its own for what packages bring.
mkdir -p "$root/usr/share/zsh/vendor-completions"
mv "$root/usr/share/zsh/site-functions/_plat" "$root/usr/share/zsh/vendor-completions/"
rmdir "$root/usr/share/zsh/site-functions"

doc=$root/usr/share/doc/platfs
mkdir -p "$doc"
{
    echo "platfs ($version) unstable; urgency=medium"
    printf '\n  * Version %s; CHANGELOG.md.gz says what is new.\n\n' "$version"
    echo " -- The platfs authors <platfs@example.invalid>  $(LC_ALL=C date -uRd "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$doc/changelog.gz"
gzip -9nc CHANGELOG.md >"$doc/CHANGELOG.md.gz"
repository=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
mit=$(sed -e '1,/^Copyright/d' -e '/./,$!d' -e 's/^$/./' -e 's/^/ /' LICENSE-MIT | sed '1{/^ \.$/d}')
year=$(date -ud "@$SOURCE_DATE_EPOCH" +%Y)
awk -v mit="$mit" -v repository="$repository" -v year="$year" \
    '{ gsub("@REPOSITORY@", repository); gsub("@YEAR@", year) } $0 == "@MIT@" { print mit; next } { print }' $own/copyright >"$doc/copyright"
find "$root/usr/share/man" -type f -exec gzip -9n {} +

depends="libc6"
if type -P dpkg-shlibdeps >/dev/null; then
    mkdir "$work/debian"
    printf 'Source: platfs\n\nPackage: platfs\nArchitecture: any\n' >"$work/debian/control"
    found=$(cd "$work" && dpkg-shlibdeps -O "$root/usr/bin/plat" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
    depends=${found:-$depends}
fi
# A command that asks for no loader needs no library.
if ! readelf -l "$root/usr/bin/plat" | grep -q INTERP; then depends=; fi

mkdir "$root/DEBIAN"
sed -e "s/@VERSION@/$version/" -e "s/@ARCH@/$arch/" -e "s/@SIZE@/$(du -sk --apparent-size "$root/usr" | cut -f1)/" \
    -e "s/@DEPENDS@/$depends/" -e '/^Depends: $/d' $own/control.in >"$root/DEBIAN/control"
install -m 755 $own/prerm "$root/DEBIAN/prerm"
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$out"
dpkg-deb --root-owner-group "-Z${COMPRESSION:-xz}" --build "$root" "$out/platfs_${version}_$arch.deb" >/dev/null
echo "$out/platfs_${version}_$arch.deb"
