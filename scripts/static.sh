#!/usr/bin/env bash
# The static `plat`: builds it with musl, prints its size, and has it build, list, read and check an image in a
# directory that holds nothing else and that it can't leave. FEATURES names features (all but stores over the network if
# it is not set, `-` for none), PROFILE the profile, MOST the largest size in bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"
target=x86_64-unknown-linux-musl
profile=${PROFILE:-release-small}
most=${MOST:-9000000}
out=${CARGO_TARGET_DIR:-target}/$target/$profile/plat

die() { echo "static: $*" >&2; exit 1; }

features=${FEATURES:-archives,mount,store}
chosen=(--no-default-features)
[ "$features" = - ] || chosen+=(--features "$features")
if ! rustc --print target-libdir --target "$target" | xargs test -d; then
    rustup target add "$target" || die "the Rust target $target can't be had"
fi
type -P musl-gcc >/dev/null || die "musl-gcc is missing: apt-get install musl-tools"

# Rust brings a linker that joins functions with the same code and packs the relocations: some 197,000 bytes less.
lld=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/gcc-ld
packed=()
if [ -x "$lld/ld.lld" ]; then
    for flag in "-B$lld" -fuse-ld=lld -Wl,-O2 -Wl,--icf=all -Wl,-z,pack-relative-relocs; do
        packed+=(-C "link-arg=$flag")
    done
fi
CC_x86_64_unknown_linux_musl=musl-gcc "${CARGO:-cargo}" rustc --quiet --profile "$profile" --target "$target" \
    -p platfs-cli --bin plat "${chosen[@]}" -- "${packed[@]}"

# A root directory with the command, a source, and nothing else.
root=$(mktemp -d "${TMPDIR:-/tmp}/platfs-static.XXXXXX")
trap 'rm -rf "$root"' EXIT
# Other profiles than the default keep symbols.
strip -o "$root/plat" "$out"
size=$(stat -c %s "$root/plat")
printf '%s: %s bytes stripped, profile %s, features %s\n' "$out" "$size" "$profile" "${FEATURES:-archives,mount,store}"
[ "$size" -le "$most" ] || die "larger than $most bytes"
if readelf -l "$out" 2>/dev/null | grep -q INTERP; then die "asks for a loader: it is not static"; fi

# The proof.
mkdir -p "$root/source/etc"
echo guest >"$root/source/etc/hostname"
tar -C "$root/source" -cf "$root/source.tar" .
if [ "$(id -u)" = 0 ]; then enter=(chroot "$root"); else enter=(unshare --map-root-user chroot "$root"); fi
"${enter[@]}" /plat build /source /disk.img
[ "$("${enter[@]}" /plat ls /disk.img /etc)" = hostname ] || die "plat ls shows something else in the empty root"
[ "$("${enter[@]}" /plat cat /disk.img /etc/hostname)" = guest ] || die "plat cat shows something else"
"${enter[@]}" /plat check /disk.img
case ",${FEATURES:-archives}," in
*,archives,*)
    "${enter[@]}" /plat build /source.tar /tar.img
    "${enter[@]}" /plat check /tar.img
    ;;
*)
    said=$("${enter[@]}" /plat build /source.tar /tar.img 2>&1) && die "an archive was read without archives"
    [[ $said == *"made without archives"* ]] || die "an archive is refused otherwise: $said"
    ;;
esac
if type -P e2fsck >/dev/null; then e2fsck -fn "$root/disk.img" >/dev/null 2>&1 || die "e2fsck complains"; fi
echo "static: builds, lists, reads and checks in an empty root directory"
