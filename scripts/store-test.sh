#!/usr/bin/env bash
# Tests of volumes in a real server of S3: versitygw (Apache-2.0), built with Go into target/tools the first time. `faults::`
# are those with a proxy before it that makes its answers wrong. Arguments are filters of tests.
# TAKEOVERS and RACES raise the counts (1000 and 200 for all of it). ROOT is a tar or directory with a Debian root for the
# slow line; that of `make demo` if nothing is said. At the end a server where two can win (s3s-fs, Apache-2.0, built into target/tools
# the first time, unless LOOSE=no) must be refused.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools="$target/tools"
version=v1.8.0

server=$(command -v versitygw || echo "$tools/versitygw")
if [ ! -x "$server" ]; then
    if ! command -v go >/dev/null; then
        echo "SKIPPED: tests with a server of S3 - neither versitygw nor Go is installed" >&2
        [ -z "${PLATFS_NO_SKIP:-}" ] || exit 1
        exit 0
    fi
    GOBIN="$tools" go install "github.com/versity/versitygw/cmd/versitygw@$version"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/store-test-XXXXXX")
started=()
clean() {
    for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
mkdir -p "$work/data/bucket"

# start PORT COMMAND: a server, until it answers.
start() {
    local port=$1
    "${@:2}" >"$work/log" 2>&1 &
    local server=$!
    started+=("$server")
    for _ in $(seq 100); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return; fi
        if ! kill -0 "$server" 2>/dev/null; then break; fi
        sleep 0.1
    done
    cat "$work/log" >&2
    exit 1
}
port=$((20000 + RANDOM % 20000))
start "$port" "$server" --port "127.0.0.1:$port" --access test --secret testtest --quiet posix "$work/data"

export AWS_ENDPOINT="http://127.0.0.1:$port" AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testtest
export AWS_REGION=us-east-1 AWS_ALLOW_HTTP=true PLATFS_S3=s3://bucket/test
export PLATFS_TAKEOVERS="${TAKEOVERS:-50}" PLATFS_RACES="${RACES:-25}"
root=${ROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/platfs/rootfs.tar}
[ ! -e "$root" ] || export PLATFS_ROOT="$root"
refusal=a_server_where_two_can_win_is_refused
filters=("$@")
[ "$#" != 0 ] || filters=(store::s3:: store::faults::)
cargo test -p platfs-cli --features s3 --test all -- "${filters[@]}" --nocapture --test-threads=1 --skip "$refusal"

[ "$#" = 0 ] && [ "${LOOSE:-}" != no ] || exit 0
loose=$(command -v s3s-fs || echo "$tools/bin/s3s-fs")
if [ ! -x "$loose" ] && ! cargo install --quiet --root "$tools" s3s-fs@0.14.1 --features binary; then
    echo "SKIPPED: $refusal - s3s-fs can't be installed" >&2
    [ -z "${PLATFS_NO_SKIP:-}" ] || exit 1
    exit 0
fi
mkdir -p "$work/loose/bucket"
port=$((port + 1))
start "$port" "$loose" --host 127.0.0.1 --port "$port" --access-key test --secret-key testtest "$work/loose"
export AWS_ENDPOINT="http://127.0.0.1:$port" PLATFS_S3_LOOSE=s3://bucket/test
cargo test -p platfs-cli --features s3 --test all "$refusal" -- --nocapture
