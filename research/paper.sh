#!/usr/bin/env bash
# Measures again what research/docs/paper.md says, and the tables of the founding documents: figures as text, a file of results, and the report, in paper below the target directory.
# SEEDS (5) is of ageing, ROUNDS (1) of real file systems. Rows of real file systems need root and loop devices; without them they are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=${SEEDS:-5} rounds=${ROUNDS:-1}
target=${CARGO_TARGET_DIR:-target}
out=$target/paper
mkdir -p "$out"
cargo build --release -q -p plat-lab -p platfs-cli
lab() { echo "plat-lab $*" >&2; "$target/release/plat-lab" "$@"; }
lab run criteria nine-writers stream-writers appenders --results "$out/results.jsonl" >"$out/engine.txt"
lab run alloc-cost index-cost threads >"$out/times.txt"
# It ends with 1 where a statement of a document does not hold, which is a result.
lab run founding --results "$out/results.jsonl" >"$out/founding.txt" || [ $? = 1 ]
lab run age --seeds "$seeds" --policies lease,mballoc,xfs --results "$out/results.jsonl" >"$out/age.txt"
lab run geriatrix --seeds "$seeds" --policies lease,mballoc,xfs --results "$out/results.jsonl" >"$out/geriatrix.txt"
if [ "$(id -u)" = 0 ]; then
    lab peers --rounds "$rounds" --systems library,fuse,ext4,xfs >"$out/peers.txt"
    lab peers s1 --results "$out/results.jsonl" >"$out/s1-kernel.txt"
else
    echo "paper: SKIPPED: real file systems need root" >&2
fi
lab report "$out/results.jsonl" -o "$out/report.html"
echo "$out/report.html"
