#!/usr/bin/env bash
# Runs every fuzz target for SECONDS (first argument, 60 by default), one after the other; stops at the first finding.
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
        htree-ext2-tea extents-deep indirect-triple shared-xattrs ea-inode revision-0; do
        [ ! -e "fuzz/seeds/$name.img" ] || continue
        image=$(cargo xtask images "$name") || { echo "fuzz: without the image $name"; continue; }
        cp --sparse=always "$image" fuzz/seeds/new
        tune2fs -O ^metadata_csum fuzz/seeds/new >/dev/null 2>&1 || true
        mv fuzz/seeds/new "fuzz/seeds/$name.img"
    done
}
PATH="$PATH:/usr/sbin:/sbin"
seeds

# The coverage flags of cargo-fuzz are accepted by a stable compiler only in this mode. No address sanitizer: the code has no `unsafe`.
export RUSTC_BOOTSTRAP=1
for target in $(cargo fuzz list); do
    echo "fuzz: $target for $seconds s"
    cargo fuzz run -s none "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -len_control=0 -print_final_stats=1
done
