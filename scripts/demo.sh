#!/usr/bin/env bash
# One minute: a Debian root file system into an ext4 image, checked, read back, next to `mke2fs -d` on the same input.
# Without root, apt or network the input is made of the machine's own files.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/platfs
work=$(mktemp -d "${TMPDIR:-/tmp}/platfs-demo.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache"
plat=${PLAT:-${CARGO_TARGET_DIR:-target}/release/plat}

say() { printf '%s\n' "$*"; }
title() { printf '\n== %s\n' "$*"; }
# Shows a command as a user would type it, and runs it; long output is cut.
show() {
    say "\$ $(sed "s#$plat#plat#g; s#$work/##g; s#$cache/##g" <<<"$*")"
    "$@" 2>&1 | awk -v most=12 'NR <= most; END { if (NR > most) printf "... %d lines more\n", NR - most }'
}
# Runs a command silently and leaves its wall-clock seconds in `seconds`.
timed() {
    local start=${EPOCHREALTIME/[.,]/} code=0
    "$@" >"$work/log" 2>&1 || code=$?
    seconds=$(awk -v us=$((${EPOCHREALTIME/[.,]/} - start)) 'BEGIN { printf "%.2f", us / 1e6 }')
    [ "$code" = 0 ] || { say "failed ($code): $*"; cat "$work/log"; exit 1; }
}

debian_tar() {
    [ "$(id -u)" = 0 ] && type -P mmdebstrap >/dev/null && type -P apt-get >/dev/null || return 1
    say "making a Debian root file system with mmdebstrap (once; kept in the cache)"
    # The release and the package sources of this machine, so that what apt can reach is what is used.
    local suite sources=() file
    suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
    for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
        if [ "${#sources[@]}" = 0 ] && [ -s "$file" ]; then sources=("$file"); fi
    done
    timeout 300 mmdebstrap --variant=apt --format=tar --quiet "$suite" "$cache/rootfs.tar.new" "${sources[@]}" >"$work/log" 2>&1 ||
        { rm -f "$cache/rootfs.tar.new"; return 1; }
    mv "$cache/rootfs.tar.new" "$cache/rootfs.tar"
}
own_tar() {
    say "NO ROOT, APT OR NETWORK: the input is made of this machine's own files (/etc, /usr/include, /usr/share/doc, /usr/lib/python3)"
    local parts=()
    for part in etc/os-release etc/passwd usr/lib/os-release usr/include usr/share/doc usr/lib/python3; do
        if [ -r "/$part" ]; then parts+=("$part"); fi
    done
    # Files that may not be read are left out; tar then exits with 2.
    tar -cf "$cache/own.tar" -C / "${parts[@]}" 2>/dev/null || true
}

title "input"
tar=$cache/rootfs.tar
if [ ! -e "$tar" ] && ! debian_tar; then
    own_tar
    tar=$cache/own.tar
fi
entries=$(tar -tf "$tar" | wc -l)
say "$(basename "$tar"): $(($(stat -c %s "$tar") / 1048576)) MiB, $entries entries"

title "plat build"
timed "$plat" build "$tar" "$work/disk.img"
plat_seconds=$seconds
say "\$ plat build $(basename "$tar") disk.img        # $plat_seconds s"
show e2fsck -fn "$work/disk.img"

title "reading it back"
show "$plat" ls -l "$work/disk.img" /
show "$plat" cat "$work/disk.img" /etc/os-release
show "$plat" stat "$work/disk.img" /etc/passwd
show "$plat" info "$work/disk.img"

title "again: the same bytes?"
"$plat" build --reproducible "$tar" "$work/one.img" >/dev/null
"$plat" build --reproducible "$tar" "$work/two.img" >/dev/null
if cmp "$work/one.img" "$work/two.img"; then say "two builds with --reproducible: identical"; else exit 1; fi
rm -f "$work/one.img" "$work/two.img"

title "next to mke2fs -d"
mkdir "$work/tree"
# Without root, owners are not kept and devices not made: the comparison of times holds anyway.
tar -xf "$tar" -C "$work/tree" --exclude='./dev/*' 2>/dev/null || true
size=$(stat -c %s "$work/disk.img")
timed mke2fs -q -F -t ext4 -N "$((entries + 100))" -d "$work/tree" "$work/mke2fs.img" "$((size * 13 / 10 / 1024))k"
mke2fs_seconds=$seconds
report() {
    local summary free
    summary=$(e2fsck -fn "$2" 2>/dev/null | sed -n 's/.*(\([0-9.]*%\) non-contiguous).*/\1/p')
    free=$(e2freefrag "$2" 2>/dev/null | sed -n 's/^Num\. free extent: *//p')
    printf '%-14s %8s s %8d MiB %8d MiB %14s %14s\n' "$1" "$3" $(($(stat -c %s "$2") / 1048576)) $(($(du -k "$2" | cut -f1) / 1024)) "$summary" "$free"
}
printf '%-14s %10s %12s %12s %14s %14s\n' "" time size "on disk" "split files" "free extents"
report "plat build" "$work/disk.img" "$plat_seconds"
report "mke2fs -d" "$work/mke2fs.img" "$mke2fs_seconds"
