#!/bin/sh
# Makes the unit `c-units/zlib` anew: see ../README.md. Takes the source of zlib from the crate `libz-sys`, clang with the
# target wasm32, wasm-ld, and `translate`, which ../build.sh builds.
set -eu
cd "$(dirname "$0")"
target="${CARGO_TARGET_DIR:-$PWD/../target}"
work="$target/zlib"
rm -rf "$work"
mkdir -p "$work/src" "$work/objects"

# A package that depends on the crate; Cargo checks what it gets.
cat >"$work/Cargo.toml" <<EOF
[package]
name = "source"
edition = "2024"

[workspace]

[dependencies]
libz-sys = { version = "=1.1.22", default-features = false }
EOF
: >"$work/src/lib.rs"
cargo vendor --quiet --manifest-path "$work/Cargo.toml" "$work/vendor" >/dev/null
zlib="$work/vendor/libz-sys/src/zlib"

# Two copies, with other names and other tables in the second one, but for a file of which names stay the same.
compile() {
    copy=$1 file=$2
    shift 2
    clang --target=wasm32-unknown-unknown -std=c11 -Os -ffreestanding -Wall -Wextra -DZ_SOLO -I"$zlib" "$@" \
        -c "$file.c" -o "$work/objects/$copy-$(basename "$file").o"
}
for file in programs "$zlib/adler32" "$zlib/crc32" "$zlib/deflate" "$zlib/infback" "$zlib/inffast" "$zlib/inflate" \
    "$zlib/inftrees" "$zlib/trees"; do
    compile first "$file"
    compile second "$file" -DZ_PREFIX -DLIT_MEM
done
compile both "$zlib/zutil"
wasm-ld --no-entry "$work"/objects/*.o -o "$work/zlib.wasm"

unit=../c-units/zlib
rm -rf "$unit"
programs="levels strategies streams callbacks checksums"
# shellcheck disable=SC2046,SC2086
"$target/debug/translate" "$work/zlib.wasm" "$unit" $programs $(printf 'other_%s ' $programs)
cp "$zlib/LICENSE" "$unit/LICENSE"
