#!/bin/sh
# The ten pipelines of crates/cli/tests/all/pipelines.rs with a real system: a Debian that mmdebstrap makes. Needs root for the
# kernel's mounts, a mirror of Debian, mmdebstrap, fakeroot, pseudo, genimage, simg2img, qemu-img. SUITE names the release, MIRROR the mirror, ROOTFS an archive that is there already.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d "${TMPDIR:-/var/tmp}/plat-pipelines.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
rootfs=${ROOTFS:-$work/rootfs.tar}
if [ -z "${ROOTFS:-}" ]; then
    mmdebstrap --variant=minbase --include=iputils-ping,acl --format=tar \
        "${SUITE:-stable}" "$rootfs" ${MIRROR:+"$MIRROR"}
fi
[ $# -gt 0 ] || set -- pipelines::
PLATFS_ROOTFS=$rootfs cargo test -p platfs-cli --test all -- --nocapture --test-threads=1 "$@"
