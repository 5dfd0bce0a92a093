#!/usr/bin/env bash
# Random tests with new seeds, round after round, until MINUTES (first argument, 60 unless told) are over: crash states, verbs
# against a model, files and trees of mounts, verdicts of damaged volumes, killed servers and databases, hostile bytes.
# Stops at the first failure and prints how to repeat it. SOAK_ONLY="crash fsx" runs only these.
set -uo pipefail
cd "$(dirname "$0")/.."
minutes=${1:-60}
end=$(($(date +%s) + minutes * 60))
log=$(mktemp)
trap 'rm -f "$log"' EXIT
rounds=0 runs=0
skipped=()

# A number that no run before had.
seed() { od -An -N4 -tu4 /dev/urandom | tr -d ' '; }

# Runs one job; its words are what repeats it.
job() {
    local name=$1 begun
    shift
    [[ -z ${SOAK_ONLY:-} || " $SOAK_ONLY " == *" $name "* ]] || return 0
    [ "$(date +%s)" -lt "$end" ] || return 0
    begun=$(date +%s)
    if ! env "$@" >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        printf '\nsoak: %s FAILED after %s runs. It is repeated by\n\n    ' "$name" "$runs" >&2
        printf '%q ' "$@" >&2
        printf '\n\n' >&2
        exit 1
    fi
    runs=$((runs + 1))
    # A test that could not run has shown nothing.
    if grep -q '^SKIPPED: ' "$log"; then
        grep '^SKIPPED: ' "$log" | sort -u
        skipped+=("$name")
    fi
    printf 'soak: %-10s %4d s  %s\n' "$name" "$(($(date +%s) - begun))" "$*"
}

# PACKAGE, FILTER of its tests.
test_of() { echo "cargo test -q --release -p $1 --test all -- $2"; }

# What is missing is said once, before anything runs.
has_fuzz=yes
if ! cargo fuzz --version >/dev/null 2>&1; then
    has_fuzz=
    echo "soak: SKIPPED: fuzz - cargo-fuzz is not installed (cargo install --locked cargo-fuzz)"
    skipped+=(fuzz)
fi
cargo build -q --release -p platfs-cli -p plat-lab && cargo test -q --release --no-run -p platfs -p platfs-cli || exit 1

while [ "$(date +%s)" -lt "$end" ]; do
    rounds=$((rounds + 1))
    job crash "${CARGO_TARGET_DIR:-target}/release/plat-lab" crash --seed "$(seed)" --states 20000 --e2fsck 500
    # shellcheck disable=SC2046 # words of a command
    {
        job model PLATFS_SEED="$(seed)" PLATFS_STEPS=2000 $(test_of platfs model::) --nocapture
        job fsx PLATFS_SEED="$(seed)" PLATFS_STEPS=4000 $(test_of platfs-cli fsx::) --nocapture
        job churn PLATFS_SEED="$(seed)" $(test_of platfs-cli churn::) --nocapture
        job agreement PLATFS_SEED="$(seed)" PLATFS_STEPS=500 $(test_of platfs agreement_on_many) --ignored --nocapture
        job lies PLATFS_SEED="$(seed)" PLATFS_STEPS=500 $(test_of platfs many_lies) --ignored --nocapture
        job killed PLATFS_SEED="$(seed)" PLATFS_STEPS=9 $(test_of platfs-cli fifty_killed_servers) --ignored --nocapture
        job sqlite PLATFS_SEED="$(seed)" PLATFS_STEPS=10 $(test_of platfs-cli sqlite_many_times) --ignored --nocapture
        job postgresql PLATFS_SEED="$(seed)" PLATFS_STEPS=3 $(test_of platfs-cli postgresql_many_times) --ignored --nocapture
    }
    if [ -n "$has_fuzz" ]; then job fuzz scripts/fuzz.sh 20; fi
done
printf 'soak: %d rounds, %d runs in %d minutes, no failure' "$rounds" "$runs" "$minutes"
if [ "${#skipped[@]}" -gt 0 ]; then printf '; SKIPPED in part: %s' "$(printf '%s\n' "${skipped[@]}" | sort -u | tr '\n' ' ')"; fi
echo
