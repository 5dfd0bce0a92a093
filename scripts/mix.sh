#!/usr/bin/env bash
# What copies attributes, through mounts: `cp -a`, `rsync -aAX`, `tar --acls --xattrs`, dpkg, git, buildah's overlay store, on
# files whose attributes are one of few, with access control lists that come and go. Every order gets its part of MINUTES (first
# argument, 60 unless told). After each round e2fsck is silent, the mount is writable, and copies have what their source has.
# Needs root. PLAT is the command (target/release/plat unless told); MIX_ORDERS="ordered softdep" runs only these.
set -uo pipefail
cd "$(dirname "$0")/.."
minutes=${1:-60}
plat=$(realpath "${PLAT:-${CARGO_TARGET_DIR:-target}/release/plat}")
read -ra orders <<<"${MIX_ORDERS:-data=ordered data=writeback data=journal softdep normal sync async}"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/plat-mix.XXXXXX")
mount=$work/mnt image=$work/disk.img log=$work/log
mkdir "$mount"
cleanup() {
    mountpoint -q "$mount" && "$plat" umount "$mount"
    mountpoint -q "$mount" || rm -rf "$work"
}
trap cleanup EXIT
fail() {
    printf 'mix: %s, round %s, seed %s: FAILED: %s\n' "$order" "$round" "$seed" "$*" >&2
    cat "$log" >&2 2>/dev/null
    exit 1
}
for tool in setfacl setfattr rsync git dpkg-deb e2fsck; do
    command -v $tool >/dev/null || { echo "mix: $tool is missing" >&2; exit 2; }
done
buildah=$(command -v buildah) || echo "mix: SKIPPED: buildah is not installed"

some() { echo $((RANDOM % $1)); }

# A file or directory gets attributes and lists like others.
dress() {
    case $(some 8) in
    0 | 1) setfattr -n user.a -v 0123456789 "$1" && setfattr -n user.b -v 9876543210 "$1" ;;
    2) setfattr -n user.a -v "$(printf 'v%.0s' {1..300})" "$1" ;;
    3) setfattr -n security.selinux -v "system_u:object_r:kind$(some 3)_t:s0" "$1" ;;
    4) setfacl -m "u:$((77 + $(some 2))):rw,m::rw" "$1" ;;
    5) setfacl -b "$1" ;;
    6) chmod "0$((6 + $(some 2)))44" "$1" ;;
    7) setfattr -n trusted.overlay.origin -v "$(some 3)" "$1" ;;
    esac
}

facts() { (cd "$1" && getfattr -Rdm- . 2>/dev/null && getfacl -Rn . 2>/dev/null && find . -printf '%p %y %m %U %G %l\n' | sort); }

same() { cmp -s <(facts "$1") <(facts "$2") || fail "$3: $(diff <(facts "$1") <(facts "$2") | head -5)"; }

source_tree() {
    mkdir -p "$1"/{bin,etc/sub,"share/a b"}
    setfacl -d -m "g:77:rx" "$1/etc"
    for at in $(seq 60); do
        local file=("$1/bin" "$1/etc" "$1/etc/sub" "$1/share/a b")
        file="${file[$(some 4)]}/f$at"
        head -c "$(some 30000)" /dev/urandom >"$file"
        for _ in 1 2 3; do dress "$file" || fail "attributes of $file"; done
    done
    cp /bin/true "$1/bin/tool" && setcap cap_net_raw+ep "$1/bin/tool" 2>/dev/null
    ln -s ../etc/f1 "$1/bin/link"
}

package() {
    mkdir -p "$work/deb/DEBIAN" "$work/deb/usr/share/mix"
    printf 'Package: mix\nVersion: 1\nArchitecture: all\nMaintainer: none\nDescription: mix\n' >"$work/deb/DEBIAN/control"
    for at in $(seq 80); do echo "$at" >"$work/deb/usr/share/mix/f$at"; done
    dpkg-deb -b "$work/deb" "$work/mix.deb" >/dev/null
}

unpack() {
    mkdir -p "$1/var/lib/dpkg/"{info,updates} && touch "$1/var/lib/dpkg/"{status,available}
    dpkg --root="$1" --force-all -i "$work/mix.deb" >/dev/null 2>&1 || fail "dpkg -i"
    [ "$(find "$1/usr/share/mix" -type f | wc -l)" = 80 ] || fail "dpkg lost files"
}

repository() {
    git init -q "$1" && cp -a "$2/." "$1" && git -C "$1" add -A &&
        git -C "$1" -c user.name=m -c user.email=m@m commit -qm one && git clone -q "$1" "$1.clone" &&
        git -C "$1.clone" fsck --no-progress >/dev/null || fail "git"
}

layers() {
    local b=("$buildah" --root "$1/store" --runroot "$work/run" --storage-driver overlay) container
    [ -n "$buildah" ] || return 0
    container=$("${b[@]}" from scratch 2>"$work/said") || { echo "mix: SKIPPED: buildah: $(head -1 "$work/said")"; buildah=; return; }
    for _ in 1 2; do
        "${b[@]}" copy -q "$container" "$2" /tree >/dev/null && "${b[@]}" commit -q "$container" mix >/dev/null || fail "buildah"
        "${b[@]}" rm "$container" >/dev/null
        container=$("${b[@]}" from mix) || fail "buildah from"
    done
    "${b[@]}" rm -a >/dev/null && "${b[@]}" rmi -a >/dev/null
}

one_round() {
    local m=$mount/r$round s
    s=$m/source
    source_tree "$s"
    cp -a "$s" "$m/cp" && same "$s" "$m/cp" "cp -a"
    rsync -aAX "$s/" "$m/rsync" && same "$s" "$m/rsync" "rsync -aAX"
    mkdir "$m/tar"
    tar --acls --xattrs --xattrs-include='*' -C "$s" -cf - . | tar --acls --xattrs --xattrs-include='*' -C "$m/tar" -xpf - || fail tar
    same "$s" "$m/tar" "tar"
    unpack "$m/root"
    repository "$m/git" "$s"
    layers "$m" "$s"
    find "$m/cp" -type f | while read -r file; do dress "$file" || fail "attributes of $file"; done
    rm -r "$m/rsync/etc" && cp -a "$s/etc" "$m/rsync/" && rm -rf "$m/tar"
    [ "$((round % 3))" = 0 ] && rm -rf "$mount"/r*/store "$mount"/r*
    touch "$mount/writable" || fail "the mount is read-only"
}

finish() {
    "$plat" umount "$mount" 2>"$work/said" || fail "umount"
    [ -s "$log" ] && fail "the mount complained"
    e2fsck -fn "$image" >"$work/fsck" 2>&1 || fail "$(cat "$work/fsck")"
    # Five passes between the first line and the last.
    [ "$(wc -l <"$work/fsck")" = 7 ] || fail "$(cat "$work/fsck")"
}

# On a busy machine the server before may still be on its way out.
again() {
    for _ in $(seq 60); do
        "$plat" mount "$image" "$mount" -o "$order" --log "$log" 2>"$work/said" && return
        sleep 1
    done
    cat "$work/said" >&2
    return 1
}

package
for order in "${orders[@]}"; do
    end=$(($(date +%s) + minutes * 60 / ${#orders[@]})) round=0 seed=$RANDOM
    RANDOM=$seed
    journal=has_journal
    case $order in softdep | normal | sync) journal=^has_journal ;; esac
    rm -f "$image" && "$plat" mkfs -q -O "$journal" "$image" 2G || fail mkfs
    while [ "$(date +%s)" -lt "$end" ]; do
        round=$((round + 1))
        again || fail mount
        one_round
        finish
    done
    printf 'mix: %-14s %4d rounds, no failure\n' "$order" "$round"
done
