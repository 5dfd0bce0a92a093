#!/usr/bin/env bash
# `plat mount` next to the kernel's driver (on a loop device) and fuse2fs: each on a fresh image on the same disk, in rounds (the first argument, 5), side by side;
# prints medians and ratios. Needs root. PLATFS_BENCH_TESTS and PLATFS_BENCH_CONTENDERS choose parts; PLATFS_BENCH_DIR is where the images are made.
# Contenders: kernel, fuse2fs; plat (in no order), ordered (through the journal), softdep; noxattr, device (the old transport) and stay (giveway=never), each
# in no order; before (another plat, which PLAT_BEFORE names, in no order). Tests: tar copy bulk seq random fs_mark writers dbench fsync sqlite memory.
# `bulk`: `plat import`, `cp -r` and `rm -r` on the mount beside tar, cp and rm on the kernel's, each stable at its end; seconds, and seconds of processors
# (the command's and the server's; what the kernel's own threads do for either is not in it).
# floor is a server that keeps all in memory (crates/fuse/examples/floor.rs) and gets the same requests as plat. `... cpu s` is the processor time of a server
# for that work until all was synced, without its unmount.
# `tar x` and `rm -rf` end with the unmount, since what waits in a server is not written for a sync of the kernel's pages.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"
rounds=${1:-5}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/platfs
work=${PLATFS_BENCH_DIR:-$cache}/bench-mount.$$
plat=$(realpath "${PLAT:-${CARGO_TARGET_DIR:-target}/release/plat}")
before=${PLAT_BEFORE:-}
floor=$(dirname "$plat")/examples/floor
tar=${PLATFS_LINUX_TAR:-$cache/linux.tar}
contenders=${PLATFS_BENCH_CONTENDERS:-kernel plat fuse2fs}
tests=${PLATFS_BENCH_TESTS:-tar seq random fs_mark dbench}
dir=$work/mnt image=$work/image

say() { printf '%s\n' "$*" >&2; }
[ "$(id -u)" = 0 ] || { say "bench-mount: SKIPPED: needs root for the kernel's mount"; exit 0; }
[ -e "$tar" ] || { say "bench-mount: SKIPPED: no $tar; scripts/bench.sh fetches it"; exit 0; }
if [[ " $contenders " = *" floor "* ]] && [ ! -x "$floor" ]; then
    say "bench-mount: no $floor; build it: cargo build --release -p platfs-fuse --example floor"
    exit 1
fi
mkdir -p "$dir"
clean() {
    mountpoint -q "$dir" && { umount "$dir" 2>/dev/null || umount -l "$dir"; }
    rm -rf "$work"
}
trap clean EXIT

fresh() {
    rm -f "$image"
    truncate -s 8G "$image"
    # Nothing is left to be initialised in the background.
    mke2fs -q -F -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 "$image"
}
attach() {
    case $1 in
    kernel) mount -o loop "$image" "$dir" ;;
    fuse2fs) fuse2fs -o rw "$image" "$dir" >/dev/null 2>&1 ;;
    plat) "$plat" mount -o rw,async "$image" "$dir" ;;
    ordered) "$plat" mount -o rw,data=ordered "$image" "$dir" ;;
    softdep) "$plat" mount -o rw,softdep "$image" "$dir" ;;
    noxattr) "$plat" mount -o rw,async,noxattr "$image" "$dir" ;;
    device) "$plat" mount -o rw,async,transport=device "$image" "$dir" ;;
    stay) "$plat" mount -o rw,async,giveway=never "$image" "$dir" ;;
    before) "$before" mount -o rw,async "$image" "$dir" ;;
    floor)
        if mountpoint -q "$dir"; then return; fi
        # In a session of its own, as the process behind `plat mount` is (the scheduler weighs sessions against each other), and without rseq, as that.
        GLIBC_TUNABLES=glibc.pthread.rseq=0 setsid "$floor" "$dir" >>"$work/floor" &
        while ! mountpoint -q "$dir"; do sleep 0.02; done
        # As `plat mount` does.
        bdi=/sys/class/bdi/$(mountpoint -d "$dir")
        echo 0 >"$bdi/strict_limit"; echo 100 >"$bdi/max_ratio"; echo 1024 >"$bdi/read_ahead_kb"
        ;;
    esac
}
# The process behind the mount.
server() { pgrep -f "^(plat mount|fuse2fs) .*$image|^$floor $dir" | head -n 1; }
detach() {
    case $1 in
    plat | ordered | softdep | noxattr | device | stay) "$plat" umount "$dir" ;;
    before) "$before" umount "$dir" ;;
    kernel) umount "$dir" ;;
    # It has what it has until its process ends. The kernel forgets all that it knows when it mounts again.
    floor) if [ "${2:-}" = last ]; then umount "$dir" && wait; else sync -f "$dir" && mount -i -o remount "$dir"; fi ;;
    # Its process ends after the mount is gone.
    fuse2fs) umount "$dir"; while ! flock -n "$image" true || pgrep -f "fuse2fs -o rw $image" >/dev/null; do sleep 0.05; done ;;
    esac
}
again() { detach "$1"; attach "$1"; }

record() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$work/results"; }
timed() {
    local contender=$1 name=$2 begun ended
    shift 2
    begun=$(date +%s.%N)
    "$@" >"$work/log" 2>&1 || { say "bench-mount: FAILED: $contender: $name: $(tail -n 3 "$work/log")"; return; }
    ended=$(date +%s.%N)
    record "$contender" "$name" "$(awk -v a="$begun" -v b="$ended" 'BEGIN { print b - a }')"
}
# fio's terse line: bandwidth in KiB/s of reads in field 7, of writes in 48.
fio_rate() {
    local contender=$1 name=$2 field=$3
    shift 3
    fio --name=x --filename="$dir/fio" --size=4G --output-format=terse --terse-version=3 "$@" >"$work/log" 2>&1 ||
        { say "bench-mount: FAILED: $contender: $name: $(tail -n 3 "$work/log")"; return; }
    record "$contender" "$name" "$(grep '^3;' "$work/log" | cut -d';' -f"$field" | awk '{ print $1 / 1024 }')"
}

# Files made a second by fs_mark, in a directory for each thread: their names are the same at times.
mark() {
    local contender=$1 name=$2 threads=$3 directory
    shift 3
    for directory in $(seq "$threads"); do mkdir -p "$dir/mark/$directory"; done
    # From inside: it has little room for the names of directories.
    # shellcheck disable=SC2046 # words without spaces
    (cd "$dir/mark" && counted "$contender" "$name" fs_mark -l "$work/fs_log" $(printf -- '-d %s ' *) "$@") >"$work/log" 2>&1 ||
        say "bench-mount: FAILED: $contender: fs_mark: $(tail -n 1 "$work/log")"
    record "$contender" "$name" "$(awk '/^FSUse/ { found = 1; next } found && NF { print $4; exit }' "$work/log")"
    rm -rf "$dir/mark"
}
# Processor time of the server since it was started, in seconds; nothing where there is none.
spent() {
    local server
    server=$(server) && awk '{ print ($14 + $15) / 100 }' "/proc/$server/stat"
}
# Does work, and records the processor time that the server took for it.
counted() {
    local contender=$1 name=$2 before after
    shift 2
    before=$(spent) || before=
    "$@" || return
    if after=$(spent); then record "$contender" "$name cpu s" "$(awk -v a="$before" -v b="$after" 'BEGIN { print b - a }')"; fi
}
synced() { "$@" && sync -f "$dir"; }
untar() { counted "$1" "tar x" synced tar -xf "$tar" -C "$dir" && detach "$1"; }
copy() { counted "$1" "cp -r" synced cp -r "$dir/from" "$dir/to" && detach "$1"; }
# Transactions a second of one row each in SQLite, each synchronous in full, by the journal's mode.
commits() {
    local contender=$1 mode=$2 rows=$3 begun ended
    rm -f "$dir/base"*
    begun=$(date +%s.%N)
    { echo "pragma journal_mode=$mode; pragma synchronous=full; create table t(a);"
      awk -v n="$rows" 'BEGIN { for (i = 0; i < n; i++) print "insert into t values(" i ");" }'; } |
        sqlite3 "$dir/base" >"$work/log" 2>&1 || { say "bench-mount: FAILED: $contender: sqlite $mode: $(tail -n 1 "$work/log")"; return; }
    ended=$(date +%s.%N)
    record "$contender" "sqlite $mode" "$(awk -v a="$begun" -v b="$ended" -v n="$rows" 'BEGIN { print n / (b - a) }')"
}
retar() { tar -cf - -C "$dir" . | cat >/dev/null; }
empty() { find "$dir" -mindepth 1 -maxdepth 1 ! -name lost+found -exec rm -rf {} +; }
remove() { counted "$1" "rm -rf" synced empty && detach "$1"; }
# Memory of the server behind the mount, in MiB: the most it had, and what it keeps ten seconds later.
memory() {
    local contender=$1 server
    server=$(server) || return 0
    tar -xf "$tar" -C "$dir"
    sleep 10
    record "$contender" "peak MiB" "$(awk '/^VmHWM/ { print $2 / 1024 }' "/proc/$server/status")"
    record "$contender" "MiB kept" "$(awk '/^VmRSS/ { print $2 / 1024 }' "/proc/$server/status")"
    empty
}

# Seconds that a command takes, and those of processors that it and the server behind the mount take.
worked() {
    local contender=$1 name=$2 server before=0 after=0 spent TIMEFORMAT='%R %U %S'
    shift 2
    server=$(pgrep -f "^(plat mount|fuse2fs) .*$image" || true)
    [ -z "$server" ] || before=$(awk '{ print $14 + $15 }' "/proc/$server/stat")
    spent=$({ time "$@" >"$work/log" 2>&1; } 2>&1) || say "bench-mount: FAILED: $contender: $name: $(tail -n 1 "$work/log")"
    [ -z "$server" ] || after=$(awk '{ print $14 + $15 }' "/proc/$server/stat")
    record "$contender" "$name" "$(awk '{ print $1 }' <<<"$spent")"
    record "$contender" "$name cpu" "$(awk -v a="$before" -v b="$after" -v hz="$(getconf CLK_TCK)" '{ print $2 + $3 + (b - a) / hz }' <<<"$spent")"
}
then_sync() { "$@" && sync -f "$dir"; }
bulk() {
    local contender=$1
    mkdir "$dir/from"
    case $contender in
    kernel | fuse2fs)
        worked "$contender" import then_sync tar -xf "$tar" -C "$dir/from"
        worked "$contender" "bulk cp -r" then_sync cp -r "$dir/from" "$dir/to"
        worked "$contender" "bulk rm -r" then_sync rm -rf "$dir/from"
        ;;
    *)
        worked "$contender" import "$plat" import -q "$dir/from" "$tar"
        worked "$contender" "bulk cp -r" "$plat" cp -r "$dir/from" "$dir/to"
        worked "$contender" "bulk rm -r" "$plat" rm -r "$dir/from"
        ;;
    esac
    empty
}

run() {
    local contender=$1 clients
    fresh
    attach "$contender"
    for test in $tests; do
        case $test in
        tar)
            timed "$contender" "tar x" untar "$contender"
            attach "$contender"
            timed "$contender" "tar c" retar
            timed "$contender" "rm -rf" remove "$contender"
            attach "$contender"
            ;;
        copy)
            mkdir "$dir/from" && tar -xf "$tar" -C "$dir/from" --wildcards '*/drivers/*'
            again "$contender"
            find "$dir/from" -type f -exec cat {} + >/dev/null
            timed "$contender" "cp -r" copy "$contender"
            attach "$contender"
            empty
            ;;
        bulk) bulk "$contender" ;;
        memory) memory "$contender" ;;
        seq)
            fio_rate "$contender" "write 1M" 48 --rw=write --bs=1M --end_fsync=1
            again "$contender"
            fio_rate "$contender" "read 1M" 7 --rw=read --bs=1M
            ;;
        random)
            fio_rate "$contender" "random write 4K" 48 --rw=randwrite --bs=4k --runtime=20 --time_based --end_fsync=1
            again "$contender"
            fio_rate "$contender" "random read 4K" 7 --rw=randread --bs=4k --runtime=20 --time_based
            rm -f "$dir/fio"
            ;;
        fs_mark) mark "$contender" "fs_mark files/s" 64 -s 65536 -n 625 -S 0 ;;
        writers)
            mark "$contender" "1 writer" 1 -s 16384 -n 20000 -S 0
            mark "$contender" "16 writers" 16 -s 16384 -n 2000 -S 0
            ;;
        sqlite)
            commits "$contender" delete 2000
            commits "$contender" wal 4000
            ;;
        fsync) mark "$contender" "fsynced files/s" 16 -s 16384 -n 1000 -S 1 ;;
        dbench)
            for clients in 1 4 16; do
                dbench -t 15 -D "$dir" "$clients" >"$work/log" 2>&1 || say "bench-mount: FAILED: $contender: dbench $clients"
                record "$contender" "dbench $clients" "$(awk '/^Throughput/ { print $2 }' "$work/log")"
            done
            ;;
        esac
    done
    detach "$contender" last
    [ "$contender" = floor ] || e2fsck -fn "$image" >"$work/log" 2>&1 || say "bench-mount: FAILED: $contender: e2fsck: $(tail -n 3 "$work/log")"
}

cat "$tar" >/dev/null
say "bench-mount: $tar; $rounds rounds of: $contenders"
say "bench-mount: processors $(nproc), the first shares its last cache with $(cat /sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list 2>/dev/null || echo '(not known)');" \
    "enable_uring $(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null || echo '(not there)'); load $(cut -d' ' -f1-3 /proc/loadavg)"
for _ in $(seq "$rounds"); do
    for contender in $contenders; do
        sync
        run "$contender"
    done
done

median() {
    awk -F'\t' -v who="$1" -v name="$2" '$1 == who && $2 == name { print $3 }' "$work/results" | sort -g |
        awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'
}
row() {
    local name=$1 contender
    grep -q "$(printf '\t%s\t' "$name")" "$work/results" || return 0
    printf '%-22s' "$name"
    for contender in $contenders; do
        awk -v x="$(median "$contender" "$name")" 'BEGIN { printf " %9s", x == "" ? "-" : sprintf("%.1f", x) }'
    done
    echo
}
# Ratio of one contender to another, and whether it is within what we want: at most for seconds, at least for rates.
ratio() {
    local name=$1 ours=$2 theirs=$3 way=$4 limit=$5
    awk -v name="$name, $ours / $theirs" -v a="$(median "$ours" "$name")" -v b="$(median "$theirs" "$name")" -v way="$way" -v limit="$limit" 'BEGIN {
        if (a == "" || b + 0 == 0) exit
        printf "%-34s %6.2f   at %s %.2f: %s\n", name, a / b, way, limit, (way == "most" ? a / b <= limit : a / b >= limit) ? "holds" : "MISSED" }'
}
printf '%-22s' 's or MiB/s'
# shellcheck disable=SC2086 # words without spaces
printf ' %9s' $contenders
echo
names=("tar x" "tar c" "rm -rf" "cp -r" "import" "import cpu" "bulk cp -r" "bulk cp -r cpu" "bulk rm -r" "bulk rm -r cpu" "write 1M" "read 1M" "random write 4K" "random read 4K" "fs_mark files/s" "1 writer" "16 writers" "fsynced files/s" "sqlite delete" "sqlite wal" "dbench 1" "dbench 4" "dbench 16" "peak MiB" "MiB kept")
for name in "${names[@]}"; do row "$name"; done
for name in "${names[@]}"; do row "$name cpu s"; done
echo
ratio "tar x" plat kernel most 1.2
ratio "tar x" plat fuse2fs most 0.2
ratio "tar c" plat kernel most 1.3
ratio "rm -rf" plat kernel most 1.5
for name in "tar x" "cp -r" "rm -rf" "fs_mark files/s" "1 writer" "16 writers"; do ratio "$name cpu s" plat floor most 1.15; done
for suffix in "" " cpu"; do
    ratio "import$suffix" plat kernel most 0.5
    ratio "bulk cp -r$suffix" plat kernel most 0.5
    ratio "bulk rm -r$suffix" plat kernel most 0.3
done
ratio "write 1M" plat kernel least 0.8
ratio "read 1M" plat kernel least 0.8
ratio "random write 4K" plat kernel least 0.5
ratio "random read 4K" plat kernel least 0.5
ratio "fs_mark files/s" plat kernel least 0.6
for mode in delete wal; do for order in ordered softdep; do ratio "sqlite $mode" "$order" kernel least 0.9; done; done
for clients in 1 4 16; do ratio "dbench $clients" plat kernel least 0.5; done
ratio "tar x" ordered kernel most 1.3
ratio "fsynced files/s" ordered kernel least 0.7
for name in "tar x" "rm -rf"; do
    ratio "$name" softdep ordered most 1.0
    ratio "$name" plat softdep most 1.0
    ratio "$name" plat ordered most 1.0
done
