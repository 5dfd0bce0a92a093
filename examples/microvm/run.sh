#!/usr/bin/env bash
# From an OCI archive to a booted virtual machine: builds the guest's root with `plat build`, boots it with a Debian kernel
# in QEMU (KVM where it can be used, else TCG), and looks at the image again after the guest has written to it.
#
# usage: run.sh [ARCHIVE]     an OCI image layout as a tar; without it one is made of a Debian root file system
#        run.sh --fetch       only fetches the kernel into the cache
#
# PLAT names the command, PLATFS_ROOTFS_TAR the Debian root. The guest's first process is `init` beside this file.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
PATH="$PATH:/usr/sbin:/sbin"
plat=$(realpath "${PLAT:-${CARGO_TARGET_DIR:-$here/../../target}/release/plat}")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/platfs
rootfs=${PLATFS_ROOTFS_TAR:-$cache/rootfs.tar}
work=$(mktemp -d "${TMPDIR:-/tmp}/platfs-microvm.XXXXXX")
trap 'rm -rf "$work"' EXIT

say() { printf '%s\n' "$*"; }
give_up() { say "microvm: $*" >&2; exit 1; }

# A kernel of the distribution and its modules for virtio, from its package, without installing it.
fetch() {
    [ -e "$cache/microvm/vmlinuz" ] && return
    local package new=$cache/microvm.new
    package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
    [ -n "$package" ] || give_up "no package linux-image-cloud-amd64 in reach"
    rm -rf "$new" && mkdir -p "$new"
    (cd "$work" && apt-get -qq download "$package" 2>/dev/null) || give_up "$package can't be fetched"
    dpkg-deb -x "$work"/linux-image-*.deb "$work/kernel"
    cp "$work"/kernel/boot/vmlinuz-* "$new/vmlinuz"
    for module in virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk; do
        find "$work/kernel" -name "$module.ko" -exec cp {} "$new/" \;
    done
    rm -rf "$cache/microvm" && mv "$new" "$cache/microvm"
}

blob() {
    local digest
    digest=$(sha256sum <"$1" | cut -d' ' -f1)
    mkdir -p "$work/oci/blobs/sha256"
    cp "$1" "$work/oci/blobs/sha256/$digest"
    printf '{"mediaType":"%s","digest":"sha256:%s","size":%d}' "$2" "$digest" "$(stat -c %s "$1")"
}
# An OCI image of two layers: the Debian root, and the guest's first process.
archive() {
    local kind=application/vnd.oci.image layers config manifest id
    # In Debian `sbin` is a link to this directory.
    mkdir -p "$work/layer/usr/sbin" && install -m 755 "$here/init" "$work/layer/usr/sbin/microvm-init"
    # The smallest Debian has no `mount`.
    mkdir -p "$work/layer/usr/lib/microvm" && install -m 755 "$(type -P busybox)" "$work/layer/usr/lib/microvm/busybox"
    tar --owner=0 --group=0 -C "$work/layer" -cf "$work/layer.tar" usr/sbin/microvm-init usr/lib/microvm
    id() { sha256sum <"$1" | cut -d' ' -f1; }
    printf '{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:%s","sha256:%s"]}}' \
        "$(id "$rootfs")" "$(id "$work/layer.tar")" >"$work/config"
    layers=$(blob "$rootfs" $kind.layer.v1.tar),$(blob "$work/layer.tar" $kind.layer.v1.tar)
    config=$(blob "$work/config" $kind.config.v1+json)
    printf '{"schemaVersion":2,"config":%s,"layers":[%s]}' "$config" "$layers" >"$work/manifest"
    manifest=$(blob "$work/manifest" $kind.manifest.v1+json)
    printf '{"schemaVersion":2,"manifests":[%s]}' "$manifest" >"$work/oci/index.json"
    printf '{"imageLayoutVersion":"1.0.0"}' >"$work/oci/oci-layout"
    tar -C "$work/oci" -cf "$work/guest.oci.tar" oci-layout index.json blobs
}

# Loads the modules and hands over to the root on the disk.
initramfs() {
    mkdir -p "$work/early/bin" "$work/early/root" "$work/early/dev" "$work/early/proc"
    cp "$(type -P busybox)" "$work/early/bin/busybox"
    cp "$cache"/microvm/*.ko "$work/early/"
    cat >"$work/early/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for module in virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk; do
    [ ! -e /$module.ko ] || /bin/busybox insmod /$module.ko
done
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 50 ]; do /bin/busybox sleep 0.1; tries=$((tries + 1)); done
/bin/busybox mount -t ext4 -o ro /dev/vda /root
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root /usr/sbin/microvm-init
INIT
    chmod 755 "$work/early/init"
    (cd "$work/early" && find . | cpio --quiet -o -H newc) >"$work/initramfs"
}

machine() {
    timeout "${MICROVM_SECONDS:-120}" qemu-system-x86_64 -machine "q35,accel=$1" -cpu "$2" -m 512 -nodefaults -no-reboot \
        -display none -serial stdio -kernel "$cache/microvm/vmlinuz" -initrd "$work/initramfs" \
        -append "console=ttyS0 panic=-1 loglevel=4" -drive "file=$3,format=raw,if=virtio" </dev/null 2>"$work/qemu" |
        tr -d '\r' | tee "$work/console"
}
boot() {
    if [ -r /dev/kvm ] && [ -w /dev/kvm ]; then
        # The shell would report how it ended.
        { machine kvm host "$1"; } 2>/dev/null && return
        # A host that is a guest itself may offer a device that does not work.
        if [ -s "$work/console" ]; then return 1; fi
        say "(KVM does not work here: $(head -n 1 "$work/qemu"); TCG)"
    fi
    machine tcg max "$1"
}

if ! type -P qemu-system-x86_64 busybox cpio >/dev/null && [ "$(id -u)" = 0 ] && type -P apt-get >/dev/null; then
    say "installing qemu-system-x86, busybox-static and cpio"
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends qemu-system-x86 busybox-static cpio >/dev/null || true
fi
for tool in qemu-system-x86_64 busybox cpio; do
    type -P "$tool" >/dev/null || give_up "no $tool; Debian has qemu-system-x86, busybox-static and cpio"
done
mkdir -p "$cache"
fetch
[ "${1:-}" != --fetch ] || exit 0
source=${1:-}
if [ -z "$source" ]; then
    [ -e "$rootfs" ] || give_up "no $rootfs; make demo makes it"
    archive
    source=$work/guest.oci.tar
fi
say "== plat build --size 512M $(basename "$source") root.img"
"$plat" build -q --size 512M "$source" "$work/root.img"
initramfs
say "== the guest's console"
boot "$work/root.img" || { cat "$work/qemu" >&2; give_up "QEMU failed"; }
grep -q "^microvm: done" "$work/console" || give_up "the guest did not come to its end"
say "== after the guest"
"$plat" check -n "$work/root.img"
e2fsck -fn "$work/root.img" >"$work/fsck" 2>&1 || { cat "$work/fsck"; give_up "e2fsck finds something"; }
"$plat" cat "$work/root.img" /var/lib/microvm/report
say "microvm: the guest booted from our image, wrote to it, and the image is in order"
