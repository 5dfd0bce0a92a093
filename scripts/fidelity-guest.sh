#!/usr/bin/env bash
# plat-lab fidelity by another kernel: a guest, whose first process runs the comparison on a disk of its own.
# usage: scripts/fidelity-guest.sh KERNEL [WORKLOAD..] [--seed N ..]
# KERNEL is a release whose /boot/vmlinuz-KERNEL and /lib/modules/KERNEL are here, for instance of Debian's
# linux-image-amd64. Results are lines of JSON on standard output.
set -euo pipefail
cd "$(dirname "$0")/.."
kernel=${1:?usage: scripts/fidelity-guest.sh KERNEL [WORKLOAD..] [--seed N ..]}
shift
lab=${PLAT_LAB:-${CARGO_TARGET_DIR:-target}/release/plat-lab}
for tool in qemu-system-x86_64 cpio gzip mke2fs modprobe; do
    command -v "$tool" >/dev/null || { echo "$tool is not installed" >&2; exit 1; }
done
# ACCEL=tcg emulates the guest, for hosts where guests under KVM hang.
accel=${ACCEL:-kvm}
[ -e /dev/kvm ] || accel=tcg
case $accel in kvm) cpu=host,-arch-capabilities ;; *) cpu=max ;; esac
work=$(mktemp -d "${TMPDIR:-/var/tmp}/fidelity-guest.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{proc,sys,dev,work,etc,tmp,usr/bin}
for link in bin sbin; do ln -s usr/bin "$root/$link"; done

# Programs with the libraries that they load. Libraries keep their paths, so /lib and /lib64 are no links.
copy() {
    cp -L "$1" "$root/usr/bin/$(basename "$1")"
    ldd "$1" 2>/dev/null | { grep -o '/[^ ]*' || true; } | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -Lu "$library" "$root$library"
    done
}
for tool in sh mount umount cp taskset losetup insmod sync; do
    path=$(command -v "$tool") || { echo "$tool is not installed" >&2; exit 1; }
    copy "$path"
done
copy "$lab"
[ -e "$root/usr/bin/plat-lab" ] || mv "$root/usr/bin/$(basename "$lab")" "$root/usr/bin/plat-lab"

# Modules in the order in which they need each other.
modules() {
    for module in virtio_pci virtio_blk ext4 loop crc32c_generic crc32c_intel; do
        modprobe -S "$kernel" --show-depends "$module" 2>/dev/null || true
    done
}
: >"$work/order"
modules | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r module; do
    name=$(basename "$module")
    case $module in
    *.xz) xz -dc "$module" >"$root/tmp/${name%.xz}"; name=${name%.xz} ;;
    *.zst) zstd -dcq "$module" >"$root/tmp/${name%.zst}"; name=${name%.zst} ;;
    *) cp "$module" "$root/tmp/$name" ;;
    esac
    echo "insmod /tmp/$name" >>"$work/order"
done
{
    echo '#!/bin/sh'
    echo 'export PATH=/usr/bin:/bin:/sbin'
    echo 'mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev'
    cat "$work/order"
    echo 'end() { sync; echo o >/proc/sysrq-trigger; while :; do :; done; }'
    echo 'mount -t ext4 -o discard /dev/vda /work || { echo failed >/dev/ttyS1; end; }'
    printf 'plat-lab fidelity --json --dir /work'
    [ $# -eq 0 ] || printf ' %q' "$@"
    echo ' 2>/dev/ttyS1 >/dev/ttyS2 || echo failed >/dev/ttyS1'
    echo end
} >"$root/init"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs"
truncate -s 40G "$work/disk"
mke2fs -q -t ext4 -E lazy_itable_init=1 "$work/disk"
timeout "${GUEST_SECONDS:-7200}" qemu-system-x86_64 -accel "$accel" -cpu "$cpu" -smp 2 -m 4096 -nodefaults -display none -no-reboot \
    -kernel "/boot/vmlinuz-$kernel" -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1" \
    -drive "file=$work/disk,if=virtio,format=raw,discard=unmap,cache=unsafe" \
    -serial "file:$work/console" -serial "file:$work/progress" -serial "file:$work/lines" </dev/null ||
    { tail -n 20 "$work/console" "$work/progress" >&2; exit 1; }
cat "$work/progress" >&2
tr -d '\r' <"$work/progress" | grep -qx failed && { tail -n 20 "$work/console" >&2; exit 1; }
[ -s "$work/lines" ] || { tail -n 20 "$work/console" >&2; exit 1; }
tr -d '\r' <"$work/lines"
