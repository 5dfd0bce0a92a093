#!/usr/bin/env bash
# Every combination of the command's features that can be left out is checked, with warnings as errors.
set -euo pipefail
cd "$(dirname "$0")/.."
for features in "" archives mount store archives,mount archives,store mount,store; do
    echo "== features: ${features:-none}"
    "${CARGO:-cargo}" clippy --quiet -p platfs-image -p platfs-cli --no-default-features \
        --features "${features:+platfs-cli/${features//,/,platfs-cli/}}" -- -D warnings
done
