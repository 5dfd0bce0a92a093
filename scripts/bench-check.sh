#!/usr/bin/env bash
# The check of a volume with many files, beside e2fsck: seconds and peak memory of each, medians of rounds side by side, warm.
# Arguments: files (2,000,000), directories (100,000), rounds (5). The image is built once and cached.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"
files=${1:-2000000} directories=${2:-100000} rounds=${3:-5}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/platfs
plat=${PLAT:-${CARGO_TARGET_DIR:-target}/release/plat}
image=$cache/many-$files-$directories.img
work=${PLATFS_BENCH_DIR:-$cache}/bench-check.$$
mkdir -p "$cache" "$work"
trap 'rm -rf "$work"' EXIT

if [ ! -e "$image" ]; then
    echo "bench: building a volume with $files files in $directories directories (once)" >&2
    cargo run -q --release -p xtask -- many "$files" "$directories" | "$plat" build --force - "$image.new" >&2
    mv "$image.new" "$image"
fi

contender() {
    case $1 in
    "plat check, 2 threads") echo "$plat check -n --threads 2 $image" ;;
    "plat check, 1 thread") echo "$plat check -n --threads 1 $image" ;;
    "e2fsck -fn") echo "e2fsck -fn $image" ;;
    esac
}
names=("plat check, 2 threads" "plat check, 1 thread" "e2fsck -fn")
# The first round warms, and is not counted.
for round in $(seq 0 "$rounds"); do
    for name in "${names[@]}"; do
        # shellcheck disable=SC2046 # a command line of words without spaces
        if ! /usr/bin/time -o "$work/time" -f '%e %M' $(contender "$name") >"$work/log" 2>&1; then
            echo "bench: FAILED: $name: $(tail -n 3 "$work/log")" >&2
            exit 1
        fi
        [ "$round" = 0 ] || printf '%s\t%s\n' "$name" "$(tr ' ' '\t' <"$work/time")" >>"$work/results"
    done
done

median() { awk -F'\t' -v name="$1" -v column="$2" '$1 == name { print $column }' "$work/results" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
ratio() {
    awk -v a="$(median "$1" "$3")" -v b="$(median "e2fsck -fn" "$3")" -v name="$1 / e2fsck -fn, $2" -v limit="$4" 'BEGIN {
        if (b == 0) exit
        printf "%-46s %6.2f   at most %.2f: %s\n", name, a / b, limit, a / b <= limit ? "holds" : "MISSED" }'
}
echo "A volume with $files files in $directories directories, checked:"
printf '%-22s %10s %10s\n' contender seconds 'peak MiB'
for name in "${names[@]}"; do
    printf '%-22s %10s %10d\n' "$name" "$(median "$name" 2)" $(($(median "$name" 3) / 1024))
done
echo
ratio "plat check, 2 threads" time 2 0.3
ratio "plat check, 1 thread" time 2 0.6
ratio "plat check, 2 threads" memory 3 1.25
ratio "plat check, 1 thread" memory 3 1.25
echo
cargo run -q --release -p platfs --example check_small
