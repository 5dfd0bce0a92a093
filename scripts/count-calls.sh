#!/usr/bin/env bash
# Counts the system calls that the processes of plat make once they are in their cage, over suites of the command, and writes
# them where the unit test of crates/serve/src/sandbox/calls.rs compares them with what is allowed. Needs strace and root.
#
#     scripts/count-calls.sh [SUITE[:FILTER]...]
#
# adds what these suites show, or those of their tests whose names have FILTER in them, to crates/serve/src/sandbox/counted.txt.
# Each test runs alone and for COUNT_SECONDS (60) at most: one that waits for a process which its tracer still holds never
# ends. Such a test is named; the calls that were seen until then count.
#
# Each run of the command is traced from its beginning. What counts is what comes after its filter. Lines that no run shows any
# more are taken out by hand: remove the file first to count from nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
counted=$PWD/crates/serve/src/sandbox/counted.txt
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(reading listing export snapshot map metadata_image mount mount_write live trim posix fsx
    store disks changing mkfs resize tune defrag undelete roundtrip)
command -v strace >/dev/null || { echo "count-calls: needs strace" >&2; exit 1; }

# The programs that cargo names, of a kind of target and with this name.
programs() { sed -n "/\"kind\":\[\"$1\"\]/s/.*\"name\":\"$2\".*\"executable\":\"\([^\"]*\)\".*/\1/p" <<<"$messages"; }
# One build for both: the command of another one may have other features.
messages=$(cargo test -q -p platfs-cli --no-run --message-format=json --test all)
plat=$(programs bin plat)
binary=$(programs test all)

traces=$(mktemp -d)
mkdir "$traces/scratch"
chmod 1777 "$traces" "$traces/scratch"
# Ends the processes that are left of a test: those that run the command which is counted, wherever they are.
end_left() {
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/exe")" != "$plat.counted" ] || kill -"$1" "${process##*/}" || true
    done 2>/dev/null
}
restore() {
    end_left KILL
    [ ! -e "$plat.counted" ] || mv "$plat.counted" "$plat"
    sed -n "s|^[^ ]* \($traces/[^ ]*\) fuse.*|\1|p" /proc/mounts | xargs -r -n 1 umount -l || true
    rm -rf --one-file-system "$traces"
}
trap restore EXIT
mv "$plat" "$plat.counted"
# The command's own process stays the child of who started it.
cat >"$plat" <<END
#!/bin/sh
kind=write
case " \$* " in
    *://*) kind=store ;;
    *" mount "* | *" mount.plat "*) kind=mount ;;
    *" serve "*) kind=serve ;;
    *" export "* | *" get "* | *" snapshot "* | *" image "* | *" pull "* | *" diff "*" -o "* | *" map "*" -o "*) kind=output ;;
    *" undelete "*" --into "*) kind=output ;;
    *" ls "* | *" tree "* | *" stat "* | *" cat "* | *" info "* | *" diff "* | *" frag "* | *" freefrag "*) kind=read ;;
    *" map "* | *" journal "* | *" check -n "* | *" undelete "*) kind=read ;;
    *" build "* | *" put "* | *" mkfs "*) kind=make ;;
esac
exec strace -DDD -f -q -a 0 -s 0 -e signal=none -o "$traces/\$kind.\$\$" "$plat.counted" "\$@"
END
chmod 755 "$plat"
for suite in "${suites[@]}"; do
    module=${suite%%:*} filter=${suite#"${suite%%:*}"}
    echo "count-calls: $suite"
    mapfile -t tests < <(cd crates/cli && "$binary" --list "$module::" | sed -n "s/^\($module::.*${filter#:}.*\): test\$/\1/p")
    for test in "${tests[@]}"; do
        (cd crates/cli && TMPDIR=$traces/scratch timeout -k 5 "${COUNT_SECONDS:-60}" "$binary" -q --exact "$test") \
            >"$traces/scratch/said" 2>&1 || echo "count-calls: failed, or left out after ${COUNT_SECONDS:-60} s: $test"
        end_left TERM
    done
done
end_left KILL

# A process is in its cage after its second filter, and so are threads that it starts then. A call that was refused counts
# for nothing, and is told.
for trace in "$traces"/*.*; do
    name=${trace##*/}
    awk -v kind="${name%%.*}" '
        function seen(process, name) {
            if (caged[process]) called[name] = 1
            else waiting[process] = waiting[process] " " name
        }
        function cage(process, names, count, at) {
            caged[process] = 1
            count = split(waiting[process], names, " ")
            if (threads[process]) for (at = 1; at <= count; at++) called[names[at]] = 1
            delete waiting[process]
        }
        {
            process = $1
            sub(/^[0-9]+ +/, "")
            if (/^(exit|exit_group)\(/) { seen(process, substr($0, 1, index($0, "(") - 1)); next }
            if (/<unfinished \.\.\.>$/ || !/^(<\.\.\. )?[a-z]/) next
            name = /^<\.\.\. / ? $2 : substr($0, 1, index($0, "(") - 1)
            result = $0
            sub(/.*\) += /, "", result)
            if (name == "seccomp") { if (result == "0" && ++filters[process] == 2) cage(process); next }
            if (result ~ /^-1 (EPERM|ENOSYS)/) { if (caged[process]) refused[name] = 1; next }
            if (name ~ /^(clone|clone3|vfork)$/ && caged[process]) { threads[result] = 1; cage(result) }
            seen(process, name)
        }
        END {
            for (name in called) print kind, name
            for (name in refused) if (!(name in called)) print "count-calls: refused:", kind, name >"/dev/stderr"
        }' "$trace"
done | LC_ALL=C sort -u - $([ ! -e "$counted" ] || echo "$counted") >"$traces/all"
mv "$traces/all" "$counted"
