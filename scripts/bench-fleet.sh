#!/usr/bin/env bash
# New bytes of an update, by the size of pieces: of a fresh build, of `mke2fs -d`, of the older image changed in place by the kernel, and of
# `plat build --like`, whose image is then the older one of the next update (the first argument: how many, 20, at least 1). The source is a Debian root
# (PLATFS_ROOTFS_TAR; that of `make demo`); each update inserts 1 to 8 KiB into 40 files, adds 60 of 4 to 40 KiB, and removes 10, by a seed.
# A piece is new if the older image has none with the same contents at any place. Before the updates that follow the first, the time of that one is
# compared with a fresh build of the same source, in turns (ROUNDS, 9): medians. Needs root and Python.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"
updates=${1:-20}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/platfs
plat=$(realpath "${PLAT:-${CARGO_TARGET_DIR:-target}/release/plat}")
tar=${PLATFS_ROOTFS_TAR:-$cache/rootfs.tar}
[ "$(id -u)" = 0 ] || { echo "bench-fleet: SKIPPED: needs root for the source's owners and the kernel's mount" >&2; exit 0; }
[ -e "$tar" ] || { echo "bench-fleet: SKIPPED: no $tar; make demo makes it" >&2; exit 0; }
work=$(mktemp -d "$cache/bench-fleet.XXXXXX")
clean() {
    ! mountpoint -q "$work/mnt" || umount "$work/mnt"
    rm -rf "$work"
}
trap clean EXIT
mkdir "$work/root" "$work/mnt"
tar -xpf "$tar" -C "$work/root"

# Pieces of NEW that OLD does not hold, in MiB, for each size.
new_bytes() {
    python3 - "$1" "$2" <<'PY'
import hashlib, sys
def pieces(path, size):
    with open(path, 'rb') as image:
        while piece := image.read(size):
            yield len(piece), hashlib.blake2b(piece, digest_size=16).digest()
row = []
for size in (4 << 10, 64 << 10, 512 << 10):
    known = {digest for _, digest in pieces(sys.argv[1], size)}
    new = {digest: length for length, digest in pieces(sys.argv[2], size) if digest not in known}
    row.append(f'{sum(new.values()) / (1 << 20):8.2f}')
print(' '.join(row), end='')
PY
}
# One update of a tree: the same one for the same seed and the same names.
update() {
    python3 - "$1" "$2" <<'PY'
import os, random, sys
root, seed = sys.argv[1], int(sys.argv[2])
rng = random.Random(seed)
files = sorted(os.path.join(d, f) for d, _, fs in os.walk(root) for f in fs)
files = [f for f in files if os.path.isfile(f) and not os.path.islink(f) and os.stat(f).st_nlink == 1]
some = rng.sample([f for f in files if os.path.getsize(f) > 4096], 50)
for path in some[:40]:
    data = open(path, 'rb').read()
    at = rng.randrange(len(data))
    with open(path, 'r+b') as file:
        file.write(data[:at] + rng.randbytes(rng.randrange(1024, 8193)) + data[at:])
for path in some[40:]:
    os.unlink(path)
directories = sorted({os.path.dirname(f) for f in files})
for number in range(60):
    with open(os.path.join(rng.choice(directories), f'new-{seed}-{number}'), 'wb') as file:
        file.write(rng.randbytes(rng.randrange(4096, 40961)))
PY
}
build() { "$plat" build -q --force --size 256M "$1" "$2"; }
reference() { rm -f "$2"; truncate -s 256M "$2"; mke2fs -q -F -t ext4 -d "$1" "$2"; }
# Processor time and time of a fresh build and of an update, of a source given as a directory or as a tar.
times() {
    python3 - "$plat" "$work" "$1" "${ROUNDS:-9}" <<'PY'
import os, resource, statistics, subprocess, sys, time
plat, work, source, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
ways = {'plat build': [], 'plat build --like': ['--like', f'{work}/chain']}
took = {way: [] for way in ways}
for _ in range(rounds):
    for way, words in ways.items():
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run([plat, 'build', '-q', *words, source, f'{work}/timed'], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        took[way].append((spent, time.monotonic() - begun))
        os.unlink(f'{work}/timed')
medians = {way: [statistics.median(one[kind] for one in all) for kind in (0, 1)] for way, all in took.items()}
fresh, like = medians.values()
kind = 'directory' if os.path.isdir(source) else 'tar'
print(f'time, {kind}: fresh {fresh[0]:.3f} s of processors, {fresh[1]:.3f} s; --like {like[0]:.3f} s, {like[1]:.3f} s: '
      f'{like[0] / fresh[0]:.2f} and {like[1] / fresh[1]:.2f} times a fresh build')
PY
}
row() { printf '%-28s %s\n' "$1" "$2"; }

printf '%-28s %8s %8s %8s   MiB of new pieces of 4, 64 and 512 KiB\n' "" 4 64 512
build "$work/root" "$work/old"
reference "$work/root" "$work/mke2fs.old"
cp "$work/old" "$work/placed"
mount -o loop "$work/placed" "$work/mnt"
update "$work/mnt" 1
umount "$work/mnt"
# The chain begins with an image of automatic size.
"$plat" build -q "$work/root" "$work/chain"
ln "$work/chain" "$work/first"
update "$work/root" 1
build "$work/root" "$work/new"
reference "$work/root" "$work/mke2fs.new"
row "plat build" "$(new_bytes "$work/old" "$work/new")"
row "mke2fs -d" "$(new_bytes "$work/mke2fs.old" "$work/mke2fs.new")"
row "changed by the kernel" "$(new_bytes "$work/old" "$work/placed")"
rm -f "$work/old" "$work/new" "$work/placed" "$work"/mke2fs.*
tar -C "$work/root" -cpf "$work/root.tar" .
times "$work/root"
times "$work/root.tar"
rm "$work/root.tar"
for number in $(seq "$updates"); do
    [ "$number" = 1 ] || update "$work/root" "$number"
    "$plat" build -q --like "$work/chain" "$work/root" "$work/next"
    row "plat build --like, $number" "$(new_bytes "$work/chain" "$work/next")"
    e2fsck -fn "$work/next" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    mv "$work/next" "$work/chain"
done
echo "the volume: $(stat -c %s "$work/first") bytes at first, $(stat -c %s "$work/chain") at last"
mount -o loop,ro "$work/chain" "$work/mnt"
{ diff -r --no-dereference "$work/root" "$work/mnt" || true; } >"$work/log" 2>&1
umount "$work/mnt"
if grep -a -v -e 'Only in .*mnt: lost+found' -e 'is a character special file while' "$work/log"; then
    echo "bench-fleet: the kernel's mount of the last one differs from the source" >&2
    exit 1
fi
echo "the kernel's mount of the last one equals the source"
"$plat" frag --json "$work/chain" | python3 -c 'import json, sys; said = json.load(sys.stdin); print({key: said[key] for key in said if "extents" in key or "files" in key})'
