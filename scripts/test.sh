#!/usr/bin/env bash
# Every test of the workspace. The last lines count what passed, what is left to `make long`, and what this machine could
# not run, with its reason. Arguments go to `cargo test`; `-- --ignored` runs the long ones.
set -uo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp) skipped=$(mktemp)
trap 'rm -f "$log" "$skipped"' EXIT
export PLATFS_SKIPPED=$skipped
# More threads than processors: tests wait for disks, mounts and other programs for much of their time.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 2))}
"${CARGO:-cargo}" test --workspace --no-fail-fast "$@" 2>&1 | tee "$log"
code=${PIPESTATUS[0]}

awk '
    /^test result: / { passed += $4; failed += $6; ignored += $8 }
    END {
        left = ignored ? "; " ignored " long ones were left to `make long`" : ""
        printf "\n%d tests passed, %d failed%s\n", passed, failed, left
    }' "$log"
LC_ALL=C sort -u "$skipped" | awk '
    {
        cut = index($0, " - ")
        test = substr($0, 10, cut - 10); reason = substr($0, cut + 3)
        tests[reason] = tests[reason] (count[reason]++ ? ", " : "") test
    }
    END {
        for (reason in tests) { all += count[reason]; printf "SKIPPED: %d, %s: %s\n", count[reason], reason, tests[reason] | "LC_ALL=C sort" }
        close("LC_ALL=C sort")
        printf all ? "%d tests were SKIPPED in all or in part\n" : "nothing was SKIPPED\n", all
    }'
exit "$code"
