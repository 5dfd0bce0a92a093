#!/usr/bin/env bash
# The images of e2fsprogs' own tests of e2fsck, repaired by `plat check -fy` and by `e2fsck -fy`: files, directories and bytes
# that each keeps, and contents that e2fsck keeps and we don't. Demands that our second run is clean and that `e2fsck -fn` finds
# nothing behind ours. Needs root, for mounts. E2FSPROGS_TESTS names the directory `tests` of e2fsprogs' sources (`apt-get source
# e2fsprogs`). Arguments: names of tests; all f_* without. PLAT names the program, VERBOSE=1 shows contents that only e2fsck
# has. Ends with 1 where something is not as demanded, but for what `known` names.
set -uo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"
tests=${E2FSPROGS_TESTS:?names the directory tests of the sources of e2fsprogs}
plat=${PLAT:-${CARGO_TARGET_DIR:-target}/debug/plat}
work=$(mktemp -d "${TMPDIR:-/tmp}/platfs-e2fsprogs.XXXXXX")
point=$work/point
mkdir "$point"
trap 'umount "$point" 2>/dev/null; rm -rf "$work"' EXIT

# The tree of an image as lines "type bytes hash", one for each inode; the kernel reads it, or where it
# can't, plat.
tree() {
    local image=$1 by=$2
    rm -rf "$work/out"
    if [ "$by" = kernel ]; then
        mount -o ro,noload,loop "$image" "$point" 2>/dev/null || return 1
        listed "$point"
        umount "$point"
    else
        timeout 120 "$plat" export --keep-going "$image" "$work/out" >/dev/null 2>&1
        [ -d "$work/out" ] || return 1
        listed "$work/out"
    fi
}

# Bytes are those that aren't zero: neither a wrong size nor blocks of a map are contents.
listed() {
    timeout 300 python3 - "$1" <<'END'
import hashlib, os, stat, sys
seen = set()
for parent, directories, names in os.walk(sys.argv[1].encode()):
    for name in directories + names:
        path = os.path.join(parent, name)
        try:
            facts = os.lstat(path)
            if facts.st_ino in seen:
                continue
            seen.add(facts.st_ino)
            if stat.S_ISDIR(facts.st_mode):
                # lost+found counts for nothing: it is made where something goes there.
                name == b"lost+found" or print("d 0 -")
            elif stat.S_ISREG(facts.st_mode):
                with open(path, "rb") as file:
                    content = file.read(16 << 20).replace(b"\0", b"")
                print("f", len(content), hashlib.sha256(content).hexdigest())
            else:
                link = os.readlink(path) if stat.S_ISLNK(facts.st_mode) else b"%o" % facts.st_mode
                print("o 0", hashlib.sha256(link).hexdigest())
        except OSError as error:
            print("unreadable 0", error.errno)
END
}

amount() { awk '{ n[$1]++; bytes += $2 } END { printf "%d %d %d", n["f"] + n["o"], n["d"], bytes }' "$1"; }

# Where ours differ for a reason.
declare -A known=(
    [f_badroot]="the root becomes a directory again; e2fsck makes a new one, and counts the old lost+found in the new"
    [f_inlinedata_repair]="a symbolic link in its inode counts as an owner of its attribute block, as in Linux; e2fsck overlooks it"
)

images=0 same=0 more=0 failed=0
sum=(0 0 0 0 0 0)
# shellcheck disable=SC2206 # words
names=(${@:-$(cd "$tests" && echo f_*)})
for name in "${names[@]}"; do
    packed=$(ls "$tests/$name"/image.gz "$tests/$name"/image.bz2 2>/dev/null | head -n 1)
    [ -n "$packed" ] || continue
    case $packed in *.bz2) bunzip2 -c "$packed" ;; *) gunzip -c "$packed" ;; esac | cp --sparse=always /dev/stdin "$work/ours"
    cp --sparse=always "$work/ours" "$work/theirs"
    images=$((images + 1))
    notes=()
    timeout 120 "$plat" check -fy "$work/ours" >"$work/our.log" 2>&1
    ours=$?
    timeout 120 e2fsck -fy "$work/theirs" >"$work/their.log" 2>&1
    theirs=$?
    # It asks for a second run where it restarts.
    [ $theirs -gt 3 ] || timeout 120 e2fsck -fy "$work/theirs" >>"$work/their.log" 2>&1
    [ $ours -le 3 ] || [ $theirs -gt 3 ] || notes+=("ours ended with $ours, e2fsck with $theirs")
    if [ $ours -le 3 ]; then
        timeout 120 "$plat" check -fy "$work/ours" >"$work/our.log" 2>&1 || notes+=("the second run ended with $?")
        timeout 120 e2fsck -fn "$work/ours" >"$work/fn.log" 2>&1 || notes+=("e2fsck -fn behind ours: $?")
    fi
    by=kernel
    if ! tree "$work/ours" kernel >"$work/our.tree" || ! tree "$work/theirs" kernel >"$work/their.tree"; then
        by=plat
        tree "$work/ours" plat >"$work/our.tree" || : >"$work/our.tree"
        tree "$work/theirs" plat >"$work/their.tree" || : >"$work/their.tree"
    fi
    sort -o "$work/our.tree" "$work/our.tree" && sort -o "$work/their.tree" "$work/their.tree"
    # shellcheck disable=SC2207 # numbers
    now=($(amount "$work/our.tree") $(amount "$work/their.tree"))
    for at in "${!now[@]}"; do sum[at]=$((sum[at] + now[at])); done
    lost=$(comm -13 "$work/our.tree" "$work/their.tree" | grep -c '^[fo]')
    if [ "${now[0]}" -lt "${now[3]}" ] || [ "${now[1]}" -lt "${now[4]}" ] || [ "${now[2]}" -lt "${now[5]}" ]; then
        notes+=("less: files ${now[0]}/${now[3]}, directories ${now[1]}/${now[4]}, bytes ${now[2]}/${now[5]}")
    elif [ "${now[*]:0:3}" = "${now[*]:3:3}" ]; then
        same=$((same + 1))
    else
        more=$((more + 1))
    fi
    [ "$lost" = 0 ] || [ -z "${VERBOSE:-}" ] || printf '%-32s %-6s %s\n' "$name" "$by" "$lost contents that only e2fsck has; files ${now[0]}/${now[3]}, bytes ${now[2]}/${now[5]}"
    [ ${#notes[@]} = 0 ] && continue
    [ -n "${known[$name]:-}" ] || failed=$((failed + 1))
    for note in "${notes[@]}" ${known[$name]:+"known: ${known[$name]}"}; do printf '%-32s %-6s %s\n' "$name" "$by" "$note"; done
done
echo "$images images: ours keep ${sum[0]} files, ${sum[1]} directories, ${sum[2]} bytes; e2fsck ${sum[3]}, ${sum[4]}, ${sum[5]}"
echo "the same from $same, more from $more; $failed with notes"
[ $failed = 0 ]
