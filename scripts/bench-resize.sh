#!/usr/bin/env bash
# Six resizes beside resize2fs: seconds and peak memory, medians of rounds side by side, each on a fresh copy, warm.
# resize2fs asks for `e2fsck -f` first; `-f` leaves that out. Both are measured. plat checks the new volume itself.
# Argument: rounds (5). Needs root and loop devices: the kernel fills the volumes. `PLATFS_ROOTFS_TAR` names the archive
# that they hold (the Debian root of `make demo`).
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"
rounds=${1:-5}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/platfs
tar=${PLATFS_ROOTFS_TAR:-$cache/rootfs.tar}
plat=${PLAT:-${CARGO_TARGET_DIR:-target}/release/plat}
work=${PLATFS_BENCH_DIR:-$cache}/bench-resize.$$
[ "$(id -u)" = 0 ] || { echo "bench: SKIPPED: not root, and the kernel has to fill the volumes" >&2; exit 0; }
[ -e "$tar" ] || { echo "bench: FAILED: no $tar (make demo)" >&2; exit 1; }
mkdir -p "$work/mount"
cleanup() {
    ! mountpoint -q "$work/mount" || umount "$work/mount"
    rm -rf "$work"
}
trap cleanup EXIT

# name, options of mke2fs, size, new size (`min` for the smallest)
cases=(
    "to 1 TiB|-t ext4|1G|1T"
    "to 4 GiB|-t ext4|1G|4G"
    "to 24 GiB, descriptors move|-t ext4 -b 1024 -O ^resize_inode|1G|24G"
    "to 1 GiB|-t ext4|4G|1G"
    "to 1 GiB, ext3|-t ext3|4G|1G"
    "to the least|-t ext4|4G|min"
)

fill() { # image, options, size
    # shellcheck disable=SC2086 # options are words
    mke2fs -q -F $2 "$1" "$3" >"$work/log" 2>&1
    mount -o loop "$1" "$work/mount"
    tar -C "$work/mount" -xf "$tar"
    umount "$work/mount"
}

contenders=(plat resize2fs checked)

run() { # case, contender, new size
    local command size=$3 least=-M
    [ "$3" = min ] && size='' || least=''
    case $2 in
    plat) command=("$plat" resize ${least:+--min} "$work/image" ${size:+"$size"}) ;;
    resize2fs) command=(resize2fs -f ${least:+-M} "$work/image" ${size:+"$size"}) ;;
    checked) command=(sh -c "e2fsck -fy $work/image && resize2fs $least $work/image $size") ;;
    esac
    cp --sparse=always "$work/base" "$work/image"
    sync "$work/image"
    if ! /usr/bin/time -o "$work/time" -f '%e %M' "${command[@]}" >"$work/log" 2>&1; then
        echo "bench: FAILED: $2, $1: $(tail -n 3 "$work/log")" >&2
        exit 1
    fi
}

for one in "${cases[@]}"; do
    IFS='|' read -r name options size new <<<"$one"
    fill "$work/base" "$options" "$size"
    # The first round warms, and its images are checked.
    for round in $(seq 0 "$rounds"); do
        for contender in "${contenders[@]}"; do
            run "$name" "$contender" "$new"
            if [ "$round" = 0 ]; then
                e2fsck -fn "$work/image" >"$work/log" 2>&1 || { echo "bench: FAILED: $contender, $name: $(cat "$work/log")" >&2; exit 1; }
            else
                printf '%s\t%s\t%s\n' "$name" "$contender" "$(tail -n 1 "$work/time" | tr ' ' '\t')" >>"$work/results"
            fi
        done
    done
done

median() { awk -F'\t' -v name="$1" -v who="$2" -v column="$3" '$1 == name && $2 == who { print $column }' "$work/results" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
printf '%-30s %10s %10s %18s %10s %10s\n' '' 'plat, s' resize2fs 'e2fsck, resize2fs' 'plat, MiB' resize2fs
for one in "${cases[@]}"; do
    name=${one%%|*}
    printf '%-30s %10s %10s %18s %10d %10d\n' "$name" "$(median "$name" plat 3)" "$(median "$name" resize2fs 3)" \
        "$(median "$name" checked 3)" $(($(median "$name" plat 4) / 1024)) $(($(median "$name" resize2fs 4) / 1024))
done
echo
for one in "${cases[@]}"; do
    name=${one%%|*}
    for other in resize2fs checked; do
        what=$other
        [ "$other" = resize2fs ] || what='e2fsck, resize2fs'
        awk -v a="$(median "$name" plat 3)" -v b="$(median "$name" "$other" 3)" -v name="plat / $what, $name" 'BEGIN {
            printf "%-62s %6.2f   at most 1.00: %s\n", name, a / (b ? b : 0.005), a <= b ? "holds" : "MISSED" }'
    done
done
awk -v a="$(median "to 1 TiB" plat 3)" 'BEGIN { printf "%-62s %6.2f   at most 0.50: %s\n", "plat, to 1 TiB, seconds", a, a <= 0.5 ? "holds" : "MISSED" }'
