#!/usr/bin/env bash
# The figures of the README: each contender five times (or as often as the first argument says), in rounds, side by side; prints medians and ratios.
# Inputs are made once and cached. Input is warm, output is on disk and removed after each run.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin:/usr/local/go/bin"
rounds=${1:-5}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/platfs
work=${PLATFS_BENCH_DIR:-$cache}/bench.$$
plat=${PLAT:-${CARGO_TARGET_DIR:-target}/release/plat}
tar2ext4_version=v0.15.0

mkdir -p "$cache" "$work"
trap 'rm -rf "$work"' EXIT
say() { printf '%s\n' "$*" >&2; }

# The tar of Debian's linux-source-6.1, or whatever PLATFS_LINUX_TAR names, or the machine's own files.
linux_tar() {
    if [ -n "${PLATFS_LINUX_TAR:-}" ]; then echo "$PLATFS_LINUX_TAR"; return; fi
    local tar=$cache/linux.tar package
    if [ ! -e "$tar" ]; then
        say "bench: fetching the package linux-source-6.1 (once)"
        if (cd "$work" && apt-get -qq download linux-source-6.1 >/dev/null 2>&1); then
            package=$(ls "$work"/linux-source-6.1_*.deb)
            dpkg-deb --fsys-tarfile "$package" | tar -xO --wildcards './usr/src/linux-source-6.1.tar.xz' | xz -dc >"$tar.new"
            rm -f "$package"
        else
            say "bench: no such package here: THE MACHINE'S OWN FILES INSTEAD; ratios hold, times differ from the README"
            tar -cf "$tar.new" -C / usr/share usr/include 2>/dev/null || true
            tar=$cache/own.tar
            mv "$cache/linux.tar.new" "$tar"
            echo "$tar"; return
        fi
        mv "$tar.new" "$tar"
    fi
    echo "$tar"
}

# hcsshim's tar2ext4 has `replace` lines, with which `go install` will not have it: it is built from its module's directory.
tar2ext4() {
    local tool=$cache/tar2ext4-$tar2ext4_version module=github.com/Microsoft/hcsshim@$tar2ext4_version dir
    if type -P tar2ext4 >/dev/null; then type -P tar2ext4; return; fi
    if [ ! -x "$tool" ]; then
        type -P go >/dev/null || { say "bench: SKIPPED: tar2ext4 - go is not installed"; return; }
        dir=$(cd "$work" && go mod download -json "$module" 2>/dev/null | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p') || true
        [ -n "$dir" ] || { say "bench: SKIPPED: tar2ext4 - its source cannot be fetched"; return; }
        cp -r "$dir" "$work/hcsshim" && chmod -R u+w "$work/hcsshim"
        (cd "$work/hcsshim" && go build -mod=mod -o "$tool" ./cmd/tar2ext4) >"$work/go.log" 2>&1 ||
            { say "bench: SKIPPED: tar2ext4 - it does not build: $(tail -n 1 "$work/go.log")"; return; }
    fi
    echo "$tool"
}

tar=$(linux_tar)
tree=$cache/tree.$(basename "$tar" .tar)
if [ ! -d "$tree" ]; then
    say "bench: extracting $tar (once)"
    mkdir -p "$tree.new" && tar -xf "$tar" -C "$tree.new" && mv "$tree.new" "$tree"
fi
tar2ext4_tool=$(tar2ext4)
megabytes=$(($(stat -c %s "$tar") / 1000000))
entries=$(tar -tf "$tar" | wc -l)
# Room enough for mke2fs, in inodes as in blocks.
size=$((megabytes * 14 / 10 + 64))M

contender() {
    case $1 in
    "plat build TAR") echo "$plat build --force $tar $work/out" ;;
    "plat build DIR") echo "$plat build --force $tree $work/out" ;;
    "tar2ext4") [ -z "$tar2ext4_tool" ] || echo "$tar2ext4_tool -i $tar -o $work/out" ;;
    "mke2fs -d DIR") echo "mke2fs -q -F -t ext4 -N $((entries + 1000)) -d $tree $work/out $size" ;;
    "cp TAR") echo "cp --reflink=never $tar $work/out" ;;
    "plat mkfs 1T") echo "$plat mkfs -q $work/out 1T" ;;
    "mke2fs 1T") echo "mke2fs -q -F -t ext4 $work/out 1T" ;;
    esac
}
names=("plat build TAR" "tar2ext4" "cp TAR" "mke2fs -d DIR" "plat build DIR" "plat mkfs 1T" "mke2fs 1T")

# Reads the inputs so that they are in memory; the tree through tar, as a reader of files would.
warm() {
    case $1 in
    *DIR) tar -cf - -C "$tree" . | cat >/dev/null ;;
    *TAR | tar2ext4) cat "$tar" >/dev/null ;;
    esac
}

say "bench: $tar, $megabytes MB, $entries entries; $rounds rounds"
for round in $(seq "$rounds"); do
    for name in "${names[@]}"; do
        command=$(contender "$name")
        [ -n "$command" ] || continue
        [ "$round" != 1 ] || [[ $name != *DIR ]] || warm "$name"
        warm "$name"
        sync
        # shellcheck disable=SC2086 # a command line of words without spaces
        if ! /usr/bin/time -o "$work/time" -f '%e %M' $command >"$work/log" 2>&1; then
            say "bench: FAILED: $command: $(tail -n 3 "$work/log")"
            exit 1
        fi
        printf '%s\t%s\t%s\n' "$name" "$(tr ' ' '\t' <"$work/time")" "$(du -k "$work/out" | cut -f1)" >>"$work/results"
        rm -f "$work/out"
    done
done

median() { awk -F'\t' -v name="$1" -v column="$2" '$1 == name { print $column }' "$work/results" | sort -n | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }
ratio() {
    local left right
    left=$(median "$1" 2) right=$(median "$2" 2)
    [ -n "$left" ] && [ -n "$right" ] || return 0
    awk -v a="$left" -v b="$right" -v name="$1 / $2" -v limit="$3" 'BEGIN {
        if (b == 0) exit
        printf "%-34s %6.2f   at most %.2f: %s\n", name, a / b, limit, a / b <= limit ? "holds" : "MISSED" }'
}

printf '%-16s %10s %10s %12s\n' contender seconds 'peak MiB' 'disk MiB'
for name in "${names[@]}"; do
    seconds=$(median "$name" 2)
    [ -n "$seconds" ] || continue
    printf '%-16s %10s %10d %12d\n' "$name" "$seconds" $(($(median "$name" 3) / 1024)) $(($(median "$name" 4) / 1024))
done
echo
ratio "plat build TAR" "tar2ext4" 1.0
ratio "plat build TAR" "mke2fs -d DIR" 0.35
ratio "plat build TAR" "cp TAR" 2.0
ratio "plat build DIR" "mke2fs -d DIR" 0.5
awk -v mib=$(($(median "plat build TAR" 3) / 1024)) 'BEGIN { printf "%-34s %6d   at most 200: %s\n", "plat build TAR, peak MiB", mib, mib <= 200 ? "holds" : "MISSED" }'
awk -v s="$(median "plat mkfs 1T" 2)" 'BEGIN { printf "%-34s %6.2f   at most 0.20: %s\n", "plat mkfs 1T, seconds", s, s <= 0.2 ? "holds" : "MISSED" }'
