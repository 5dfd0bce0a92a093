#!/usr/bin/env bash
# Unpacks a tar (the Linux source; PLATFS_LINUX_TAR) into a mounted volume of a store and syncs it: with `flush=local`, with `flush=store`, and with the same
# image as a local file; then in a file of `rclone mount` and on a block device of s3backer, where these are installed. The store is versitygw behind a proxy
# that holds each request back (DELAY, 0.025 s). Prints seconds of the wall, seconds of processors of the server of the mount, and what the proxy counted:
# requests that write, and their bytes, until the unmount has ended. PLAT names a plat with the feature s3. Needs root, FUSE and python3.
# CONTENDERS chooses (image, flush-local, flush-store, rclone, s3backer); PLATFS_BENCH_DIR is where everything is made.
# CONTENDERS=read reads instead: `tar c` of a mounted Debian root (PLATFS_ROOTFS_TAR; that of `make demo`) in a volume of 512 MiB with an empty cache, beside
# plain streams of as many bytes as tar prints, from the same server through the same proxy, in turns (ROUNDS, 3): one GET of one object, and GETs of 8 MiB
# each on one connection, one behind the other.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/platfs
plat=$(realpath "${PLAT:-${CARGO_TARGET_DIR:-target}/release/plat}")
tar=${PLATFS_LINUX_TAR:-$cache/linux.tar}
contenders=${CONTENDERS:-image flush-local flush-store rclone s3backer}
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools")
server=${VERSITYGW:-$(command -v versitygw || echo "$tools/versitygw")}
say() { printf '%s\n' "$*" >&2; }
[ "$(id -u)" = 0 ] || { say "bench-store: SKIPPED: needs root"; exit 0; }
[ -x "$server" ] || { say "bench-store: SKIPPED: no versitygw; make store-test installs it"; exit 0; }
rootfs=${PLATFS_ROOTFS_TAR:-$cache/rootfs.tar}
[ "$contenders" != read ] || tar=$rootfs
[ -e "$tar" ] || { say "bench-store: SKIPPED: no $tar; scripts/bench.sh fetches it"; exit 0; }

work=${PLATFS_BENCH_DIR:-$cache}/bench-store.$$
dir=$work/mnt
mkdir -p "$work/data/bucket" "$dir" "$work/side"
started=()
running=
# The server, the proxy and the mounts end in the opposite order of their beginning; each is waited for.
clean() {
    trap '' INT TERM HUP
    [ -z "$running" ] || kill "$running" 2>/dev/null || true
    umount -l "$dir" 2>/dev/null || true
    umount -l "$work/side" 2>/dev/null || true
    for ((at = ${#started[@]} - 1; at >= 0; at--)); do
        kill "${started[at]}" 2>/dev/null || continue
        for _ in $(seq 50); do kill -0 "${started[at]}" 2>/dev/null && sleep 0.1 || break; done
        kill -9 "${started[at]}" 2>/dev/null || true
    done
    rm -rf "$work"
}
# A shell hears of a signal while it waits, and not while a command runs in the foreground.
attend() {
    "$@" &
    running=$!
    wait "$running"
    running=
}
trap clean EXIT
# What is signalled ends by the same way, so that no mount outlives it.
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP
port=$((20000 + RANDOM % 20000))
"$server" --port "127.0.0.1:$port" --access test --secret testtest --quiet posix "$work/data" >"$work/log" 2>&1 &
started+=($!)
cat >"$work/proxy.py" <<'P'
import socket, sys, threading, time
port, server, delay = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
lock, counted = threading.Lock(), [0, 0]
def copy(a, b, request, state):
    try:
        while data := a.recv(1 << 20):
            if request:
                if state[0]:
                    state[0] = False
                    state[1] = data[:4] in (b"PUT ", b"POST", b"DELE")
                    time.sleep(delay)
                    if state[1]:
                        with lock: counted[0] += 1
                if state[1]:
                    with lock: counted[1] += len(data)
            elif not data.startswith(b"HTTP/1.1 100"):
                state[0] = True
            b.sendall(data)
    except OSError:
        pass
    for end in (a, b):
        try: end.shutdown(socket.SHUT_RDWR)
        except OSError: pass
def count():
    # Each line that is asked for is what was counted since the last.
    for _ in sys.stdin:
        with lock:
            print(*counted, flush=True)
            counted[:] = [0, 0]
threading.Thread(target=count, daemon=True).start()
listener = socket.create_server(("127.0.0.1", port), backlog=100)
while True:
    client, _ = listener.accept()
    other = socket.create_connection(("127.0.0.1", server))
    for end in (client, other): end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    state = [True, False]
    threading.Thread(target=copy, args=(client, other, True, state), daemon=True).start()
    threading.Thread(target=copy, args=(other, client, False, state), daemon=True).start()
P
mkfifo "$work/ask" "$work/answer"
python3 "$work/proxy.py" $((port + 1)) "$port" "${DELAY:-0.025}" <"$work/ask" >"$work/answer" &
started+=($!)
exec 7>"$work/ask" 8<"$work/answer"
counts() {
    echo >&7
    read -r puts bytes <&8
}
sleep 1
export AWS_ENDPOINT="http://127.0.0.1:$((port + 1))" AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testtest
export AWS_REGION=us-east-1 AWS_ALLOW_HTTP=true PLAT_CACHE="$work/cache" PLAT_STORE_LOG="$work/logs"
export PLAT_STORE_LOG_SIZE="${PLAT_STORE_LOG_SIZE:-1G}"

# Seconds of processors of a process, and bytes that it has written.
spent() { awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); printf "%.2f", ($12 + $13) / hz }' "/proc/$1/stat"; }
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }

# measure NAME IMAGE OPTIONS: mounts, unpacks, syncs, unmounts.
measure() {
    local name=$1 image=$2 options=$3
    "$plat" mount -f -o "$options" "$image" "$dir" 2>"$work/mount.log" &
    local process=$!
    started+=("$process")
    until mountpoint -q "$dir"; do
        kill -0 "$process" 2>/dev/null || { say "$name: $(tail -1 "$work/mount.log")"; return; }
        sleep 0.05
    done
    counts
    local begun
    begun=$(now)
    attend tar xf "$tar" -C "$dir"
    attend "$plat" sync "$dir"
    local unpacked cpu early_puts early_bytes
    unpacked=$(since "$begun") cpu=$(spent "$process")
    counts
    early_puts=$puts early_bytes=$bytes
    begun=$(now)
    umount "$dir"
    wait "$process" || say "$name: $(tail -1 "$work/mount.log")"
    counts
    printf '%-12s %7s s to the sync, %6s s of processors; unmount %6s s; %5d requests that write, %6d MiB; of these %5d, %6d MiB before the sync ended\n' \
        "$name" "$unpacked" "$cpu" "$(since "$begun")" $((puts + early_puts)) $(((bytes + early_bytes) >> 20)) "$early_puts" $((early_bytes >> 20))
}

# GETs of the object `plain`, signed, on one connection: whole, or in pieces.
empty=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
signed=(-sS --fail --aws-sigv4 aws:amz:us-east-1:s3 --user test:testtest -H "x-amz-content-sha256: $empty")
get() {
    curl "${signed[@]}" "$@" >/dev/null
}
in_pieces() {
    local size at pieces=()
    size=$(stat -c %s "$work/data/bucket/plain")
    for ((at = 0; at < size; at += 8 << 20)); do
        pieces+=(${pieces:+--next "${signed[@]}"} -r "$at-$((at + (8 << 20) - 1))" "$AWS_ENDPOINT/bucket/plain")
    done
    get "${pieces[@]}"
}
list() { tar -C "$dir" --exclude=./lost+found -cf - . | cat >/dev/null; }
# timed NAME BYTES COMMAND: how long it took, and the rate.
timed() {
    local name=$1 bytes=$2 begun took
    begun=$(now)
    attend "${@:3}"
    took=$(awk -v a="$begun" -v b="$(now)" 'BEGIN { printf "%.3f", b - a }')
    printf '%-24s %8s s  %8s MiB/s\n' "$name" "$took" "$(awk -v b="$bytes" -v s="$took" 'BEGIN { printf "%.1f", b / s / 1048576 }')"
}
read_rates() {
    "$plat" build -q --size 512M "$tar" "$work/root.img"
    "$plat" push "$work/root.img" "s3://bucket/test#root" >/dev/null
    cp "$tar" "$work/data/bucket/plain"
    local bytes round process
    bytes=$(stat -c %s "$tar")
    for round in $(seq "${ROUNDS:-3}"); do
        timed "one GET" "$bytes" get "$AWS_ENDPOINT/bucket/plain"
        timed "GETs of 8 MiB" "$bytes" in_pieces
        rm -rf "$work/cache"
        "$plat" mount -f -o ro "s3://bucket/test#root" "$dir" 2>"$work/mount.log" &
        process=$!
        started+=("$process")
        until mountpoint -q "$dir"; do
            kill -0 "$process" 2>/dev/null || { say "read: $(tail -1 "$work/mount.log")"; return 1; }
            sleep 0.05
        done
        timed "tar c, nothing cached" "$bytes" list
        printf '%-24s %8s s of processors\n' "  its mount" "$(spent "$process")"
        timed "tar c, again" "$bytes" list
        attend umount "$dir"
        wait "$process" || say "read: $(tail -1 "$work/mount.log")"
    done
}

say "load: $(cut -d' ' -f1-3 /proc/loadavg)"
if [ "$contenders" = read ]; then
    read_rates
    exit
fi
"$plat" mkfs -t ext4 "$work/empty" 4G >/dev/null
for contender in $contenders; do
    case $contender in
    image)
        cp --sparse=always "$work/empty" "$work/local.img"
        measure "$contender" "$work/local.img" rw
        rm "$work/local.img"
        ;;
    flush-local | flush-store)
        "$plat" push "$work/empty" "s3://bucket/test#$contender" >/dev/null
        measure "$contender" "s3://bucket/test#$contender" "rw,flush=${contender#flush-}"
        ;;
    rclone)
        command -v rclone >/dev/null || { say "$contender: SKIPPED: not installed"; continue; }
        remote=":s3,provider=Other,endpoint='$AWS_ENDPOINT',access_key_id=test,secret_access_key=testtest,region=us-east-1:bucket"
        # Its library does not take a bundle of certificates from the environment.
        env -u AWS_CA_BUNDLE rclone --config /dev/null mount "$remote" "$work/side" --vfs-cache-mode full --cache-dir "$work/rclone" --allow-other &
        started+=($!)
        for _ in $(seq 100); do mountpoint -q "$work/side" || sleep 0.1; done
        mountpoint -q "$work/side" || { say "$contender: does not mount"; continue; }
        attend cp "$work/empty" "$work/side/rclone.img"
        measure "$contender" "$work/side/rclone.img" rw
        umount "$work/side"
        ;;
    s3backer)
        command -v s3backer >/dev/null || { say "$contender: SKIPPED: not installed"; continue; }
        s3backer -f --baseURL="$AWS_ENDPOINT/" --accessId=test --accessKey=testtest --size=4G \
            --blockSize=512k --blockCacheSize=2000 --blockCacheThreads=16 --prefix=s3backer/ --force bucket "$work/side" 2>"$work/s3backer.log" &
        started+=($!)
        for _ in $(seq 100); do mountpoint -q "$work/side" || sleep 0.1; done
        mountpoint -q "$work/side" || { say "$contender: $(tail -1 "$work/s3backer.log")"; continue; }
        attend dd if="$work/empty" of="$work/side/file" bs=512k conv=sparse,notrunc status=none
        measure "$contender" "$work/side/file" rw
        umount "$work/side"
        ;;
    esac
done
