#!/usr/bin/env bash
# New bytes of a layer over a base, both images built apart, with `--align 512K` and without it. The base is a Debian root (PLATFS_ROOTFS_TAR; that
# of `make demo`), the layer 20 MiB by a seed: 244 files below /opt/app and two of the root's own. Prints new pieces of 4, 64 and 512 KiB in MiB, and
# which pieces of 512 KiB are new. A piece is new if the base has none with the same contents at any place. Needs Python.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/platfs
plat=$(realpath "${PLAT:-${CARGO_TARGET_DIR:-target}/release/plat}")
tar=${PLATFS_ROOTFS_TAR:-$cache/rootfs.tar}
[ -e "$tar" ] || { echo "bench-align: SKIPPED: no $tar; make demo makes it" >&2; exit 0; }
mkdir -p "$cache"
work=$(mktemp -d "$cache/bench-align.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 - "$work/layer.tar" <<'PY'
import io, random, sys, tarfile
TOTAL = 20 << 20
seeded = random.Random(21)
layer = tarfile.open(sys.argv[1], 'w', format=tarfile.PAX_FORMAT)
def add(name, size=None):
    entry = tarfile.TarInfo(name)
    entry.mtime = 1760000000
    if size is None:
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        return layer.addfile(entry)
    entry.size, entry.mode = size, 0o644
    layer.addfile(entry, io.BytesIO(seeded.randbytes(size)))
large, own = [3_000_000, 2_000_000, 1_500_000, 1_200_000], [1500, 9000]
small = [min(max(int(seeded.lognormvariate(9.5, 1.3)), 200), 900_000) for _ in range(240)]
scale = (TOTAL - sum(large) - sum(own)) / sum(small)
places = ['bin', 'lib', 'lib/python', 'share', 'share/doc', 'share/locale', 'etc']
for name in ['opt', 'opt/app'] + [f'opt/app/{place}' for place in places]:
    add(f'./{name}')
for number, size in enumerate(large + [int(size * scale) for size in small]):
    add(f'./opt/app/{places[number % len(places)]}/f{number}', size)
add('./etc/motd', own[0])
add('./etc/adduser.conf', own[1])
layer.close()
PY
for options in '--align 512K' '-b 4096'; do
    # shellcheck disable=SC2086
    "$plat" build -q --reproducible --force $options "$tar" "$work/base"
    # shellcheck disable=SC2086
    "$plat" build -q --reproducible --force $options "$tar" "$work/layer.tar" "$work/both"
    python3 - "$options" "$work/base" "$work/both" <<'PY'
import hashlib, sys
options, old, new = sys.argv[1:]
def pieces(path, size):
    with open(path, 'rb') as image:
        while piece := image.read(size):
            yield hashlib.blake2b(piece, digest_size=16).digest(), any(piece)
row = []
for size in (4 << 10, 64 << 10, 512 << 10):
    known = {digest for digest, _ in pieces(old, size)}
    fresh = [at for at, (digest, is_used) in enumerate(pieces(new, size)) if is_used and digest not in known]
    row.append(f'{len(fresh) * size / (1 << 20):8.2f}')
print(f'{options:14}', *row, ' pieces of 512 KiB:', *fresh if len(fresh) < 100 else [len(fresh)])
PY
done
