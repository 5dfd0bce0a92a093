#!/bin/sh
# Copies an image that is nearly all hole through NBD, from `plat serve` and from qemu-nbd in turn: what is copied is the
# same, and the medians of five rounds are printed. Needs qemu-utils and libnbd-bin. PLAT names the command, GIB the size.
set -eu
PLAT=${PLAT:-${CARGO_TARGET_DIR:-target}/release/plat}
top=$(mktemp -d)
trap 'kill $ours $theirs 2>/dev/null; wait 2>/dev/null; rm -rf "$top"' EXIT
ours= theirs=
truncate -s "${GIB:-20}G" "$top/ours.img"
head -c 1048576 /dev/urandom | dd of="$top/ours.img" bs=1M seek=5000 conv=notrunc status=none
cp --sparse=always "$top/ours.img" "$top/theirs.img"
"$PLAT" serve --read-only --nbd "$top/plat" "$top/ours.img" >/dev/null &
ours=$!
qemu-nbd --read-only --persistent --shared=8 --format=raw --socket="$top/qemu-nbd" "$top/theirs.img" &
theirs=$!
while ! [ -S "$top/plat" ] || ! [ -S "$top/qemu-nbd" ]; do sleep 0.1; done

copy() {
    rm -f "$top/copy"
    case $1 in
        qemu-img) qemu-img convert -f raw -O qcow2 "nbd+unix:///?socket=$top/$2" "$top/copy" ;;
        nbdcopy) nbdcopy "nbd+unix:///?socket=$top/$2" "$top/copy" ;;
    esac
}

for tool in qemu-img nbdcopy; do
    for round in 1 2 3 4 5; do
        for server in plat qemu-nbd; do
            begun=$(date +%s%N)
            copy $tool $server
            echo $(($(date +%s%N) - begun)) >>"$top/$tool-$server"
        done
    done
    for server in plat qemu-nbd; do
        copy $tool $server
        case $tool in
            qemu-img) qemu-img compare -q -f qcow2 -F raw "$top/copy" "$top/theirs.img" ;;
            nbdcopy) cmp "$top/copy" "$top/theirs.img" ;;
        esac
        sort -n "$top/$tool-$server" | awk -v name="$tool from $server" 'NR == 3 { printf "%s: %.0f ms\n", name, $1 / 1e6 }'
    done
done
