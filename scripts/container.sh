#!/usr/bin/env bash
# A container image, platfs, of the static command alone (`make static` first), by podman, docker or buildah; then an
# image is made and checked in it.
set -euo pipefail
cd "$(dirname "$0")/.."
plat=${PLAT:-${CARGO_TARGET_DIR:-target}/x86_64-unknown-linux-musl/release-small/plat}
tag=${TAG:-platfs}

work=$(mktemp -d "${TMPDIR:-/tmp}/platfs-container.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/context" "$work/files/tree"
cp "$plat" "$work/context/plat"
echo guest >"$work/files/tree/hostname"

for tool in podman docker buildah; do
    type -P "$tool" >/dev/null && break
    tool=
done
case $tool in
podman | docker)
    "$tool" build --quiet -t "$tag" -f Containerfile "$work/context"
    run() { "$tool" run --rm -v "$work/files:/work" "$tag" "$@"; }
    ;;
buildah)
    # Works without namespaces of its own, too.
    export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot} STORAGE_DRIVER=${STORAGE_DRIVER:-vfs}
    buildah bud --quiet -t "$tag" -f Containerfile "$work/context"
    container=$(buildah from --pull-never "$tag")
    trap 'buildah rm "$container" >/dev/null; rm -rf "$work"' EXIT
    run() { buildah run -v "$work/files:/work" "$container" -- /plat "$@"; }
    ;;
*)
    echo "SKIPPED: container - none of podman, docker, buildah is here"
    exit 0
    ;;
esac
run build tree disk.img
run check disk.img
[ "$(run cat disk.img /hostname)" = guest ]
echo "container: $tag, made by $tool, builds, checks and reads"
