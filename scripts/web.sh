#!/usr/bin/env bash
# Makes target/web/platfs.html: one file with the page, its style, its script, and the reading library as WebAssembly.
# With --lint its code for the browser is looked at by clippy, too.
set -euo pipefail
cd "$(dirname "$0")/.."

target=wasm32-unknown-unknown
if ! rustc --print target-libdir --target $target 2>/dev/null | xargs -I{} test -d {}; then
    if ! rustup target add $target >/dev/null 2>&1; then
        echo "SKIPPED: the target $target can't be had"
        exit 0
    fi
fi
if [ "${1-}" = --lint ]; then
    # Half of the code is there for this target only.
    cargo clippy -q --lib --target $target --target-dir target/web/build -p platfs-web -- -D warnings
fi
CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_PANIC=abort CARGO_PROFILE_RELEASE_OPT_LEVEL=s CARGO_PROFILE_RELEASE_STRIP=symbols \
    CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 \
    cargo build --release --lib --target $target --target-dir target/web/build -p platfs-web

page=bindings/web/page
out=target/web/platfs.html
module=target/web/build/$target/release/platfs_web.wasm
# A line with a name between two @ is replaced by that file.
while IFS= read -r line; do
    case $line in
    @style@) cat $page/style.css ;;
    @script@) cat $page/{library,words,past,start,files,detail,map,volume,check}.js ;;
    @worker@) cat $page/worker.js ;;
    @module@) gzip -9n <"$module" | base64 -w 0 && echo ;;
    *) printf '%s\n' "$line" ;;
    esac
done <$page/page.html >"$out.new"
mv "$out.new" "$out"
echo "$out: $(stat -c %s "$out") bytes, $(stat -c %s "$module") of them unpacked are the library"
