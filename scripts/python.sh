#!/usr/bin/env bash
# Builds the wheel of bindings/python, installs it into a fresh virtual environment, and runs its tests there.
# Arguments go to `maturin build` (`--profile dev`, `--target-dir DIR`); without any it is optimised.
set -euo pipefail
cd "$(dirname "$0")/../bindings/python"

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
if ! python3 -m venv "$place/v" >/dev/null 2>&1; then
    echo "SKIPPED: python3 with venv is not installed"
    exit 0
fi
if ! "$place/v/bin/pip" -q --disable-pip-version-check install maturin pytest fsspec; then
    echo "SKIPPED: maturin, pytest and fsspec can't be had"
    exit 0
fi
if [ $# = 0 ]; then set -- --release; fi
"$place/v/bin/maturin" build -q --interpreter "$place/v/bin/python" --out "$place/wheels" "$@"
"$place/v/bin/pip" -q --disable-pip-version-check install "$place"/wheels/*.whl
"$place/v/bin/pytest" -q -p no:cacheprovider tests
