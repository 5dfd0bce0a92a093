#!/usr/bin/env bash
# The suites of a mount with a cage that there must be: POSIX cases, fsx, trees of files, live commands and the tests of
# mounts, and pjdfstest where it is installed (cargo install pjdfstest).
#
#     scripts/in-cage.sh [SUITE...]
#
# Needs root, FUSE, Landlock of Linux 6.2 or newer, and seccomp. PLATFS_TRANSPORT=uring takes io_uring.
set -euo pipefail
cd "$(dirname "$0")/.."
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(posix fsx churn live mount mount_write)
export PLATFS_SANDBOX=require

for suite in "${suites[@]}"; do
    echo "in-cage: $suite"
    cargo test -q -p platfs-cli --test all "$suite::"
done

type -P pjdfstest >/dev/null || { echo "in-cage: SKIPPED: pjdfstest - cargo install pjdfstest"; exit 0; }
cargo build -q -p platfs-cli
plat=$(realpath "${CARGO_TARGET_DIR:-target}/debug/plat")
place=$(mktemp -d)
trap '"$plat" umount "$place/mount" 2>/dev/null || true; rm -rf --one-file-system "$place"' EXIT
mkdir "$place/mount"
cat >"$place/settings" <<'END'
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"]]
END
for transport in device uring; do
    "$plat" mkfs -q -F "$place/disk.img" 256M
    "$plat" mount --sandbox=require -o "allow_other,acl,suid,dev,transport=$transport" "$place/disk.img" "$place/mount"
    "$plat" stats "$place/mount" | grep '^cage: landlock'
    if ! "$plat" stats "$place/mount" | grep -q "^transport $transport"; then
        echo "in-cage: SKIPPED: transport=$transport can't be had" >&2
        "$plat" umount "$place/mount"
        continue
    fi
    pjdfstest -c "$place/settings" -p "$place/mount" >"$place/said" || { grep FAILED "$place/said"; exit 1; }
    tail -n 1 "$place/said"
    "$plat" umount "$place/mount"
done
