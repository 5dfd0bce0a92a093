#!/usr/bin/env bash
# How much of the code the tests run: line coverage of each crate, and the ten files with the least of it.
# Arguments are packages; all that are published unless told. Needs the toolchain's own llvm-profdata and llvm-cov
# (rustup component add llvm-tools).
set -euo pipefail
cd "$(dirname "$0")/.."
packages=("$@")
if [ "${#packages[@]}" = 0 ]; then
    mapfile -t packages < <(grep -L '^publish = false' crates/*/Cargo.toml | xargs sed -n 's/^name = "\(platfs[a-z-]*\)"$/\1/p')
fi

tools=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin
for tool in llvm-profdata llvm-cov; do
    if [ ! -x "$tools/$tool" ]; then
        echo "coverage: SKIPPED - $tool is missing: rustup component add llvm-tools" >&2
        exit 1
    fi
done

work=target/coverage
mkdir -p "$work/profiles"
rm -f "$work"/profiles/*
export RUSTFLAGS="-C instrument-coverage" LLVM_PROFILE_FILE="$PWD/$work/profiles/%p-%8m.profraw"
chosen=("${packages[@]/#/--package=}")
# The programs that the tests are, and those that they start.
mapfile -t programs < <(cargo test --target-dir "$work" "${chosen[@]}" --tests --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | sort -u)
cargo test --target-dir "$work" "${chosen[@]}" --tests --no-fail-fast >"$work/log" 2>&1 ||
    { echo "coverage: tests failed; see $work/log" >&2; exit 1; }
grep '^SKIPPED: ' "$work/log" | sort -u || true

"$tools/llvm-profdata" merge -sparse "$work"/profiles/*.profraw -o "$work/all.profdata"
"$tools/llvm-cov" export -summary-only -instr-profile="$work/all.profdata" -ignore-filename-regex='/\.cargo/|/rustc/|/tests/|/tests\.rs' \
    "${programs[0]}" "${programs[@]/#/-object=}" >"$work/summary.json"
python3 - "$work/summary.json" "$PWD/" <<'PYTHON'
import json, sys
files = json.load(open(sys.argv[1]))["data"][0]["files"]
rows = []
for file in files:
    lines = file["summary"]["lines"]
    rows.append((file["filename"].removeprefix(sys.argv[2]), lines["covered"], lines["count"]))
crates = {}
for name, covered, count in rows:
    crate = "/".join(name.split("/")[:2])
    before = crates.get(crate, (0, 0))
    crates[crate] = (before[0] + covered, before[1] + count)
share = lambda covered, count: 100 * covered / max(count, 1)
for crate, (covered, count) in sorted(crates.items()):
    print(f"{crate:24} {share(covered, count):5.1f} % of {count} lines")
covered, count = (sum(row[at] for row in rows) for at in (1, 2))
print(f"{'all':24} {share(covered, count):5.1f} % of {count} lines")
print("\nleast covered, of files with 30 lines or more")
for name, covered, count in sorted((row for row in rows if row[2] >= 30), key=lambda row: share(*row[1:]))[:10]:
    print(f"{share(covered, count):5.1f} %  {name} ({count} lines)")
PYTHON
