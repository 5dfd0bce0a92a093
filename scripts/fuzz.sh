#!/usr/bin/env bash
# Runs every fuzz target for SECONDS (first argument, 60 by default), one after the other; stops at the first finding. Under the
# address sanitizer, which also finds memory that is never freed; FUZZ_SANITIZER=none is several times as fast. FUZZ_TARGETS
# names fewer targets.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}

if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "fuzz: cargo-fuzz is missing: cargo install --locked cargo-fuzz" >&2
    exit 1
fi
# Volumes for the targets `image`, `check` and `repair`: golden ones of many kinds, with their checksums switched off, or no patch would get past them.
seeds() {
    local name image
    mkdir -p fuzz/seeds
    for name in ext2-1k ext3-4k no-extents inline-data-1k kernel-odd-ext4-1k kernel-odd-inline kernel-odd-bigalloc \
        htree-ext2-tea extents-deep indirect-triple shared-xattrs ea-inode revision-0 quota-project; do
        [ ! -e "fuzz/seeds/$name.img" ] || continue
        image=$(cargo xtask images "$name") || { echo "fuzz: without the image $name"; continue; }
        cp --sparse=always "$image" fuzz/seeds/new
        tune2fs -O ^metadata_csum fuzz/seeds/new >/dev/null 2>&1 || true
        mv fuzz/seeds/new "fuzz/seeds/$name.img"
    done
}
PATH="$PATH:/usr/sbin:/sbin"
seeds

# The coverage flags of cargo-fuzz, and sanitizers, are accepted by a stable compiler only in this mode.
export RUSTC_BOOTSTRAP=1
sanitizer=${FUZZ_SANITIZER:-address}
# The sanitizer keeps freed memory for a while.
[ "$sanitizer" = none ] && rss=2048 || rss=6144
for target in ${FUZZ_TARGETS:-$(cargo fuzz list)}; do
    echo "fuzz: $target for $seconds s"
    cargo fuzz run -s "$sanitizer" "$target" -- -max_total_time="$seconds" -rss_limit_mb="$rss" -timeout=20 -len_control=0 -print_final_stats=1
done
