#!/usr/bin/env bash
# Every combination of the command's features that can be left out is checked, with warnings of ours as errors.
set -euo pipefail
cd "$(dirname "$0")/.."
for features in "" archives mount store archives,mount archives,store mount,store; do
    echo "== features: ${features:-none}"
    RUSTFLAGS="${RUSTFLAGS:-} -Dwarnings" "${CARGO:-cargo}" check --quiet -p platfs-cli --no-default-features \
        --features "$features"
done
