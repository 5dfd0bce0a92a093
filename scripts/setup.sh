#!/usr/bin/env bash
# Makes sure that the reference tools which tests, demo and bench compare with are installed.
# Installs only what is missing, only as root and with apt; otherwise names what is missing and what it costs.
set -euo pipefail

PATH="$PATH:/usr/sbin:/sbin"

# tool, Debian package that carries it, what cannot run without it
wanted='
cc          gcc          building
make        make         building
mke2fs      e2fsprogs    every comparison with the reference tools
debugfs     e2fsprogs    every comparison with the reference tools
genext2fs   genext2fs    reading the images of genext2fs
mmdebstrap  mmdebstrap   the Debian root file system of the demo
fusermount3 fuse3        mounting
fuse2fs     fuse2fs      looking at volumes that the kernel does not mount
umoci       umoci        reading the images of others
skopeo      skopeo       reading the images of others
buildah     buildah      reading the images of others (scripts/interop.sh)
bsdtar      libarchive-tools reading the archives of others
busybox     busybox-static reading the archives of others
fakeroot    fakeroot     building as the root of fakeroot
setfacl     acl          the odd tree
setfattr    attr         the odd tree
setcap      libcap2-bin  the odd tree
mkfs.xfs    xfsprogs     the file systems of the kernel beside ours
mkfs.btrfs  btrfs-progs  the file systems of the kernel beside ours
sqlite3     sqlite3      a database killed with its mount
strace      strace       recording calls for a replay
zstd        zstd         compressed tar archives
xz          xz-utils     compressed tar archives
fdisk       fdisk        partition tables
qemu-img    qemu-utils   reading qcow2 and VHD
simg2img    android-sdk-libsparse-utils reading sparse images of Android
bmaptool    bmap-tools   copying by maps of blocks
veritysetup cryptsetup-bin judging trees of hashes
chromium    chromium     looking at the pages of plat map and plat-lab report
chromedriver chromium-driver looking at the pages of plat map and plat-lab report
mandoc      mandoc       judging the pages of the manual
man         man-db       judging the pages of the manual
groff       groff-base   judging the pages of the manual
zsh         zsh          loading completions
fish        fish         loading completions
valgrind    valgrind     the library for C
pkg-config  pkg-config   the library for C
curl        curl         fetching the Rust toolchain
time        time         peak memory in the bench
'

# What takes much room, and is installed only if asked for (PLATFS_SETUP=all).
if [ "${PLATFS_SETUP:-}" = all ]; then
    wanted+='
pg_lsclusters postgresql  a database killed with its mount, and on a full volume
'
fi

missing_packages() {
    while read -r tool package purpose; do
        if [ -n "$tool" ] && ! type -P "$tool" >/dev/null; then printf '%s|%s|%s\n' "$tool" "$package" "$purpose"; fi
    done <<<"$wanted"
}

missing=$(missing_packages)
if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && type -P apt-get >/dev/null; then
    packages=$(cut -d'|' -f2 <<<"$missing" | sort -u | tr '\n' ' ')
    echo "setup: installing $packages"
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # a list of words
    if ! { apt-get -qq update && apt-get -qq install -y --no-install-recommends ca-certificates $packages; } >"$log" 2>&1; then
        echo "setup: apt-get failed:" >&2
        tail -n 5 "$log" >&2
    fi
    rm -f "$log"
    missing=$(missing_packages)
fi

if [ -n "$missing" ]; then
    echo "setup: MISSING (install them as root, or do without):" >&2
    while IFS='|' read -r tool package purpose; do
        printf 'setup:   %-12s from package %-12s needed for %s\n' "$tool" "$package" "$purpose" >&2
    done <<<"$missing"
fi
if ! type -P cargo >/dev/null; then
    echo "setup: MISSING: cargo; see https://rustup.rs (the toolchain in rust-toolchain.toml is fetched by itself)" >&2
    exit 1
fi
[ -n "$missing" ] || echo "setup: all tools are here"
