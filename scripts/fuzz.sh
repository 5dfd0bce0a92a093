#!/usr/bin/env bash
# Runs every fuzz target for SECONDS (first argument, 60 unless told), one after the other; stops at the first finding.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}

if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "fuzz: cargo-fuzz is missing: cargo install --locked cargo-fuzz" >&2
    exit 1
fi
# The coverage flags of cargo-fuzz are accepted by a stable compiler only in this mode. No address sanitizer: the code has no `unsafe`.
export RUSTC_BOOTSTRAP=1
for target in $(cargo fuzz list); do
    echo "fuzz: $target for $seconds s"
    cargo fuzz run -s none "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -print_final_stats=1
done
