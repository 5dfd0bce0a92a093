#!/usr/bin/env bash
# Tests of volumes in a real server of S3: versitygw (Apache-2.0), built with Go into target/tools the first time.
# TAKEOVERS and RACES raise the counts (1000 and 200 for all of it). ROOT is a tar or directory with a Debian root for the
# slow line; that of `make demo` if nothing is said.
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
trap 'kill "$running" 2>/dev/null || true; rm -rf "$work"' EXIT
running=
mkdir -p "$work/data/bucket"
port=$((20000 + RANDOM % 20000))
"$server" --port "127.0.0.1:$port" --access test --secret testtest --quiet posix "$work/data" >"$work/log" 2>&1 &
running=$!
for _ in $(seq 100); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
    if ! kill -0 "$running" 2>/dev/null; then
        cat "$work/log" >&2
        exit 1
    fi
    sleep 0.1
done

export AWS_ENDPOINT="http://127.0.0.1:$port" AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testtest
export AWS_REGION=us-east-1 AWS_ALLOW_HTTP=true PLATFS_S3=s3://bucket/test
export PLATFS_TAKEOVERS="${TAKEOVERS:-50}" PLATFS_RACES="${RACES:-25}"
root=${ROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/platfs/rootfs.tar}
[ ! -e "$root" ] || export PLATFS_ROOT="$root"
cargo test -p platfs-cli --features s3 --test store "${@:-s3::}" -- --nocapture --test-threads=1
