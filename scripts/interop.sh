#!/usr/bin/env bash
# Builds an image of each of 30 archives and 30 container images that other tools made, and compares what the kernel
# shows of it with what those tools unpack: names, kinds, modes, owners, links, times, sizes, contents, attributes and
# devices. Prints a line for each, and ends with 1 if one differs. Needs root, and the tools below.
#
#   scripts/interop.sh [archives|images]
set -euo pipefail
cd "$(dirname "$0")/.."

case "$#${1-}" in 0 | 1archives | 1images) ;; *)
    echo "usage: scripts/interop.sh [archives|images]" >&2
    exit 2
    ;;
esac
PLAT=$(realpath "${PLAT:-${CARGO_TARGET_DIR:-target}/release/plat}")
export LC_ALL=C PLAT
for tool in tar bsdtar busybox python3 umoci skopeo buildah setfattr getfattr setfacl setcap zstd xz gzip; do
    type -P "$tool" >/dev/null || { echo "interop: no $tool (make setup)"; exit 1; }
done
[ "$(id -u)" = 0 ] || { echo "interop: root is needed: for owners, devices and loop devices"; exit 1; }
W=$(mktemp -d "${TMPDIR:-/var/tmp}/interop.XXXXXX")
trap 'cd /; umount -q "$W/seen" "$W/merged" 2>/dev/null || true; rm -rf "$W"' EXIT
cd "$W"
count=0 failed=0

# --- what is compared ------------------------------------------------------------------------------------------------

# One line for each file below a directory. `$2` says which times count: ns, s (seconds) or none; `$3` is `xattrs` or none.
facts() {
    (
        cd "$1"
        case $2 in ns) time=%y ;; s) time=%Y ;; *) time=- ;; esac
        find . -path ./lost+found -prune -o -print0 | sort -z | while IFS= read -r -d '' name; do
            kind=$(stat -c %F "$name")
            case $kind in
                directory) printf '%q %s\n' "$name" "$(stat -c "%F %a %u %g" "$name")" ;;
                'symbolic link') printf '%q %s -> %q\n' "$name" "$(stat -c "%F %u %g" "$name")" "$(readlink "$name")" ;;
                regular*) printf '%q %s %s\n' "$name" "$(stat -c "%a %u %g %h %s $time" "$name")" "$(sha256sum <"$name")" ;;
                *) printf '%q %s\n' "$name" "$(stat -c "%F %a %u %g %t:%T $time" "$name")" ;;
            esac
        done
        [ "$3" != xattrs ] || find . -path ./lost+found -prune -o -print0 | sort -z |
            xargs -0 getfattr -h -d -m - -e hex 2>/dev/null | grep -v '^security.selinux' || true
    )
}

# Times of directories count only where the reference has kept them: most tools set them before they are filled.
compare() { # NAME REFERENCE SOURCE TIME XATTRS [OPTION...]
    local name=$1 reference=$2 source=$3 time=$4 xattrs=$5
    shift 5
    count=$((count + 1))
    rm -f o.img
    mkdir -p seen
    if ! "$PLAT" build -q "$@" "$source" o.img >said 2>&1; then
        failed=$((failed + 1))
        echo "$count: $name: REFUSED: $(head -1 said)"
        return
    fi
    e2fsck -fn o.img >said 2>&1 || { failed=$((failed + 1)); echo "$count: $name: e2fsck complains"; }
    mount -o ro,loop o.img seen
    facts "$reference" "$time" "$xattrs" >expected
    facts seen "$time" "$xattrs" >found
    umount seen
    if cmp -s expected found; then
        echo "$count: $name: equal, $(wc -l <found) lines"
    else
        failed=$((failed + 1))
        echo "$count: $name: DIFFERS"
        diff expected found | head -"${LINES_SHOWN:-6}" || true
    fi
}

# --- trees -----------------------------------------------------------------------------------------------------------

# What every format of tar can say.
plain_tree() {
    mkdir -p "$1/d/e/f" "$1/empty"
    printf one >"$1/d/one"
    head -c 200000 /dev/urandom >"$1/d/e/large"
    : >"$1/d/nothing"
    ln "$1/d/one" "$1/d/e/second"
    ln -s ../one "$1/d/e/link"
    ln -s /absolute/nowhere "$1/dangling"
    cp /bin/true "$1/d/setuid"
    chown 12:34 "$1/d/one" "$1/empty"
    chown -h 56:78 "$1/dangling"
    chmod 4755 "$1/d/setuid"
    chmod 2770 "$1/empty"
    chmod 1777 "$1/d/e/f"
    chmod 000 "$1/d/nothing"
    mknod "$1/d/null" c 1 3
    mknod "$1/d/loop" b 7 200
    mkfifo -m 640 "$1/d/fifo"
    for i in $(seq 40); do echo "$i" >"$1/d/e/f/file-$i"; done
    find "$1" -depth -exec touch -h -d '2021-03-04 05:06:07' {} +
}

# What only PAX and GNU can say.
odd_tree() {
    plain_tree "$1"
    local long=$1/$(printf 'l%.0s' {1..120})
    mkdir -p "$long/$(printf 'm%.0s' {1..200})"
    echo deep >"$long/$(printf 'm%.0s' {1..200})/$(printf 'n%.0s' {1..250})"
    ln -s "$(printf 't%.0s' {1..300})" "$1/far"
    echo x >"$1/$(printf 'new\nline')"
    echo x >"$1/ÄÖÜ-€"
    echo x >"$1/$(printf '\377bytes')"
    echo x >"$1/ space "
    echo big >"$1/owner" && chown 3000000:4000000 "$1/owner"
    touch -d '1960-01-02 03:04:05' "$1/owner"
    touch -d '2150-01-02 03:04:05' "$1/ space "
}

# What needs attributes and maps.
rich_tree() {
    odd_tree "$1"
    setfattr -n user.text -v value "$1/d/one"
    setfattr -n user.binary -v 0x00ff3d0a "$1/d/e"
    setfattr -n trusted.root -v only "$1/d/e/large"
    setcap cap_net_raw+ep "$1/d/setuid"
    setfacl -m u:1234:rw,g:5678:r "$1/d/one"
    setfacl -d -m u:1234:rwx "$1/d/e/f"
    truncate -s 5M "$1/sparse"
    printf data | dd of="$1/sparse" bs=1 seek=3000000 conv=notrunc status=none
    truncate -s 1M "$1/hole"
    touch -d '2022-02-02 02:02:02.123456789' "$1/sparse"
}

# --- archives --------------------------------------------------------------------------------------------------------

GNU=(--numeric-owner --xattrs '--xattrs-include=*' --acls --same-owner -p --warning=no-timestamp)

gnu() { # NAME TREE TIME XATTRS OPTIONS... : made and unpacked by GNU tar
    local name=$1 tree=$2 time=$3 xattrs=$4
    shift 4
    rm -rf out a.tar && mkdir out
    tar --numeric-owner "$@" -C "$tree" -cf a.tar .
    tar "${GNU[@]}" -C out -xf a.tar
    compare "GNU tar, $name" out a.tar "$time" "$xattrs"
}

bsd() { # NAME TREE TIME XATTRS OPTIONS... : made and unpacked by bsdtar
    local name=$1 tree=$2 time=$3 xattrs=$4
    shift 4
    rm -rf out a.tar && mkdir out
    bsdtar "$@" -C "$tree" -cf a.tar .
    bsdtar --numeric-owner --same-owner -p -C out -xf a.tar
    compare "bsdtar, $name" out a.tar "$time" "$xattrs"
}

archives() {
    plain_tree plain
    odd_tree odd
    rich_tree rich
    gnu v7 plain s none --format=v7 --exclude=./d/null --exclude=./d/loop --exclude=./d/fifo
    gnu ustar plain s none --format=ustar
    gnu oldgnu odd s none --format=oldgnu
    gnu gnu odd s none --format=gnu
    gnu pax odd ns none --format=posix
    gnu "gnu, sparse" rich s none --format=gnu --sparse
    gnu "oldgnu, sparse" rich s none --format=oldgnu --sparse
    for version in 0.0 0.1 1.0; do
        gnu "pax, sparse $version, attributes" rich ns xattrs --format=posix --sparse --sparse-version=$version \
            --xattrs '--xattrs-include=*' --acls
    done
    gnu "pax, attributes" rich ns xattrs --format=posix --xattrs '--xattrs-include=*' --acls
    gnu "pax, gzip" rich ns xattrs --format=posix --xattrs '--xattrs-include=*' --acls --gzip
    gnu "pax, xz" rich ns xattrs --format=posix --xattrs '--xattrs-include=*' --acls --xz
    gnu "pax, zstd" rich ns xattrs --format=posix --xattrs '--xattrs-include=*' --acls --zstd
    gnu "pax, global times" odd ns none --format=posix --pax-option=globexthdr.name=/tmp/g,comment=x
    gnu "gnu, a label" plain s none --format=gnu -V label
    gnu "gnu, incremental" plain s none --format=gnu -g "$W/snapshot"
    gnu "gnu, links as files" plain s none --format=gnu --hard-dereference
    gnu "gnu, other records" plain s none --format=gnu -b 1
    # Entries that come twice: the later one counts.
    rm -rf out a.tar && mkdir out && tar --numeric-owner -C plain -cf a.tar .
    mkdir -p again/d && echo newer >again/d/one && chown 7:8 again/d/one && tar --numeric-owner -C again -rf a.tar ./d/one
    tar "${GNU[@]}" -C out -xf a.tar
    compare "GNU tar, appended" out a.tar s none
    bsd ustar plain s none --format ustar
    bsd gnutar odd s none --format gnutar
    bsd "restricted pax" odd ns none --format paxr
    bsd "pax, attributes" rich ns xattrs --format pax --xattrs --acls
    bsd "pax, sparse, attributes" rich ns xattrs --format pax --xattrs --acls --read-sparse
    bsd "pax, zstd" rich ns xattrs --format pax --xattrs --acls --zstd
    bsd "v7" plain s none --format v7tar --exclude ./d/null --exclude ./d/loop --exclude ./d/fifo
    # Others.
    rm -rf out a.tar && mkdir out && busybox tar -C plain -cf a.tar . && tar "${GNU[@]}" -C out -xf a.tar
    compare "busybox tar" out a.tar s none
    for format in GNU PAX; do
        rm -rf out a.tar && mkdir out
        python3 -c "import sys,tarfile; tarfile.open('a.tar','w',format=tarfile.${format}_FORMAT).add('odd',arcname='.')"
        tar "${GNU[@]}" -C out -xf a.tar
        compare "Python's tarfile, $format" out a.tar s none
    done
}

# --- images ----------------------------------------------------------------------------------------------------------

# What overlayfs shows of the layers in a directory that skopeo wrote: each unpacked by tar, whiteouts in its own form.
overlay() { # DIRECTORY-OF-SKOPEO -> merged
    local lower='' at=0 layer name above
    umount -q merged 2>/dev/null || true
    rm -rf layers merged && mkdir layers merged
    for layer in $(python3 -c "import json,sys; print(*[l['digest'].split(':')[1] for l in json.load(open(sys.argv[1]+'/manifest.json'))['layers']])" "$1"); do
        mkdir "layers/$at"
        # umoci's insertions have neither the padding of their last file nor an end.
        gzip -dcf "$1/$layer" >layer.tar
        truncate -s %512 layer.tar
        head -c 1024 /dev/zero >>layer.tar
        tar "${GNU[@]}" --exclude='.wh.*' -C "layers/$at" -xf layer.tar
        tar -tf layer.tar | grep -E '(^|/)\.wh\.' | while IFS= read -r name; do
            above=layers/$at/$(dirname "$name")
            # Where a file takes the place of a directory, umoci names what was in it, too.
            [ -d "$above" ] || made "$above" "$at" || continue
            case $(basename "$name") in
                .wh..wh..opq) setfattr -n trusted.overlay.opaque -v y "$above" ;;
                *) mknod "$above/$(basename "$name" | cut -c5-)" c 0 0 ;;
            esac
        done || true
        lower=layers/$at${lower:+:$lower}
        at=$((at + 1))
    done
    mkdir layers/none
    mount -t overlay -o "ro,lowerdir=$lower:layers/none" overlay merged
}

# Makes a directory in a layer that has only a whiteout in it: as it is in the layer below.
made() { # DIRECTORY NUMBER
    local below=$2
    mkdir "$1" 2>/dev/null || return 1
    while [ "$below" -gt 0 ]; do
        below=$((below - 1))
        [ -d "layers/$below/${1#layers/*/}" ] || continue
        chown --reference="layers/$below/${1#layers/*/}" "$1"
        chmod --reference="layers/$below/${1#layers/*/}" "$1"
        return 0
    done
}

# Compares an image, which is in the OCI layout `$2` under the tag t, in six forms.
forms() { # NAME LAYOUT
    local name=$1 layout=$2 form
    rm -rf bundle dir
    skopeo --insecure-policy copy -q "oci:$layout:t" dir:dir
    umoci unpack --image "$layout:t" bundle >/dev/null 2>&1
    overlay dir
    compare "$name, OCI layout as umoci" bundle/rootfs "$layout" s none
    compare "$name, OCI layout as overlayfs" merged "$layout" s xattrs
    for form in oci-archive docker-archive dir; do
        rm -rf "image.$form"
        skopeo --insecure-policy copy -q "oci:$layout:t" "$form:image.$form$([ $form = dir ] || echo :name:t)"
        compare "$name, $form" merged "image.$form" s xattrs
    done
    rm -rf zstd
    skopeo --insecure-policy copy -q --dest-compress-format zstd "oci:$layout:t" oci:zstd:t
    compare "$name, OCI layout with zstd" merged zstd s xattrs
    umount merged
}

umoci_image() { # LAYOUT CHANGES... : each change is a function that gets the root directory
    local layout=$1 change
    shift
    rm -rf "$layout" && umoci init --layout "$layout" && umoci new --image "$layout:t"
    for change in "$@"; do
        rm -rf bundle && umoci unpack --image "$layout:t" bundle >/dev/null 2>&1
        "$change" bundle/rootfs
        umoci repack --image "$layout:t" bundle >/dev/null 2>&1
    done
}

removed() { rm -rf "$1/d/e/f" "$1/d/one" "$1/dangling"; echo new >"$1/d/new"; }
turned() { rm -rf "$1/d/e"; echo 'a file now' >"$1/d/e"; rm "$1/d/nothing"; mkdir "$1/d/nothing"; echo in >"$1/d/nothing/in"; }
linked() { ln "$1/d/e/large" "$1/across"; chmod 600 "$1/d/e/large"; ln "$1/d/setuid" "$1/d/again"; }
replaced() { rm -rf "$1/d"; mkdir "$1/d"; echo alone >"$1/d/alone"; chown 5:6 "$1/d"; }

images() {
    umoci_image one odd_tree
    forms "umoci, one layer" one
    umoci_image two plain_tree removed linked
    forms "umoci, three layers" two
    umoci_image three plain_tree turned replaced
    forms "umoci, kinds that change" three
    # By insertion, with an opaque directory and a whiteout.
    rm -rf four in && umoci init --layout four && umoci new --image four:t && mkdir in && plain_tree in/a
    umoci insert --image four:t in/a /a >/dev/null && mkdir in/b && echo b >in/b/b
    umoci insert --image four:t --opaque in/b /a/d >/dev/null
    umoci insert --image four:t --whiteout /a/dangling >/dev/null
    forms "umoci, inserted" four
    # By buildah: three commits.
    rm -rf five && five=$(buildah --storage-driver vfs from scratch)
    plain_tree in/c && buildah --storage-driver vfs add -q "$five" in/c / >/dev/null
    local mounted
    mounted=$(buildah --storage-driver vfs mount "$five") && linked "$mounted"
    buildah --storage-driver vfs config --entrypoint '["/bin/x"]' --env A=b --user 12:34 "$five"
    buildah --storage-driver vfs commit -q "$five" oci:five:t >/dev/null
    removed "$mounted"
    buildah --storage-driver vfs commit -q "$five" oci:five:t >/dev/null
    buildah --storage-driver vfs rm "$five" >/dev/null
    forms "buildah" five
}

[ "${1:-archives}" != archives ] || archives
[ "${1:-images}" != images ] || images
echo "$count compared, $failed differ"
[ "$failed" = 0 ]
