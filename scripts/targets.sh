#!/usr/bin/env bash
# Compiles for other systems: `targets.sh check` asks the compiler only; `targets.sh test` runs unit tests of `ondisk`,
# `device` and `fs` for a processor with the other order of bytes (s390x, by qemu-user) and for one of 32 bits (i686).
# What a machine lacks is said as SKIPPED.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
libraries="platfs-ondisk platfs-device platfs-check platfs-forensics platfs-placement platfs platfs-reshape platfs-chart"
failed=0

has_target() {
    rustc --print target-libdir --target "$1" | xargs test -d && return
    rustup target add "$1" >/dev/null 2>&1 && return
    echo "SKIPPED: $1 - the Rust target can't be had"
    return 1
}

# TARGET, words for cargo: no compiler of C is needed.
check() {
    local target=$1
    shift
    has_target "$target" || return 0
    echo "== cargo check --target $target $*"
    "$cargo" check --quiet --target "$target" --no-default-features "$@" || failed=1
}

packages() { printf -- '-p %s ' "$@"; }

check_all() {
    # shellcheck disable=SC2046,SC2086 # lists of words
    {
        for target in wasm32-unknown-unknown x86_64-pc-windows-gnu aarch64-apple-darwin aarch64-unknown-linux-gnu \
            i686-unknown-linux-gnu powerpc64-unknown-linux-gnu s390x-unknown-linux-gnu; do
            check $target $(packages $libraries)
        done
        # The command, without the parts in C; those are compiled for each target by who builds for it.
        check aarch64-unknown-linux-musl $(packages $libraries) -p platfs-cli --features platfs-cli/mount
    }
}

# TARGET, PREFIX of its compiler, qemu's name or nothing, then words for cargo.
tests() {
    local target=$1 prefix=$2 compiler=$2-gcc runner=$3 name
    shift 3
    has_target "$target" || return 0
    for tool in "$compiler" $runner; do
        type -P "$tool" >/dev/null && continue
        echo "SKIPPED: $target - $tool is missing: apt-get install gcc-$prefix qemu-user"
        return 0
    done
    name=$(tr a-z- A-Z_ <<<"$target")
    echo "== cargo test --target $target $*"
    # Static, so that the other system's libraries need not be found.
    env "CARGO_TARGET_${name}_LINKER=$compiler" "CARGO_TARGET_${name}_RUSTFLAGS=-C target-feature=+crt-static" \
        ${runner:+"CARGO_TARGET_${name}_RUNNER=$runner"} "CC_${target//-/_}=$compiler" \
        "$cargo" test --no-fail-fast --target "$target" "$@" || failed=1
}

test_all() {
    local each=(-p platfs-ondisk -p platfs-device -p platfs --lib)
    for words in "s390x-unknown-linux-gnu s390x-linux-gnu qemu-s390x" "i686-unknown-linux-gnu i686-linux-gnu "; do
        IFS=' ' read -r target prefix runner <<<"$words"
        tests "$target" "$prefix" "$runner" "${each[@]}"
    done
}

case ${1:-} in
check) check_all ;;
test) test_all ;;
*)
    echo "usage: targets.sh check|test" >&2
    exit 2
    ;;
esac
exit "$failed"
