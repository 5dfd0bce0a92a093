#!/usr/bin/env bash
# Builds the wheel of bindings/python, installs it into a fresh virtual environment, and runs its tests there.
# Arguments go to `maturin build` (`--profile dev`, `--target-dir DIR`); without any it is optimised.
set -euo pipefail
cd "$(dirname "$0")/../bindings/python"

skip() {
    printf '\n========\nSKIPPED: the package for Python was not built and not tested: %s\n========\n' "$1"
    [ -z "${PLATFS_NO_SKIP:-}" ]
    exit
}

command -v python3 >/dev/null || skip "python3 is not installed"
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/v" >/dev/null 2>&1 || skip "python3 has no venv (Debian: python3-venv)"
pip="$place/v/bin/pip -q --disable-pip-version-check"
$pip install maturin pytest fsspec mypy || skip "maturin, pytest, fsspec and mypy can't be had by pip"
if [ $# = 0 ]; then set -- --release; fi
"$place/v/bin/maturin" build -q --interpreter "$place/v/bin/python" --out "$place/wheels" "$@"
$pip install "$place"/wheels/*.whl
# The checkout's own package must not be found in the place of the installed one: it lies in `python/`, not here.
"$place/v/bin/pytest" -q -p no:cacheprovider tests
