#!/bin/sh
# Makes the units anew: see README.md.
set -eu
cd "$(dirname "$0")"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
cargo build --target wasm32-unknown-unknown
cargo build --target wasm32-unknown-unknown --release
cargo build --manifest-path translate/Cargo.toml

unit() {
    unit=$1 profile=$2
    shift 2
    rm -rf "units/$unit"
    "$CARGO_TARGET_DIR/debug/translate" \
        "$CARGO_TARGET_DIR/wasm32-unknown-unknown/$profile/programs.wasm" "units/$unit" "$@"
}

# Maps and formatting are two megabytes more without optimisation.
debug="hash_maps sorting json_values interpreters matrices trait_objects graphs"
unit debug debug $debug
unit release release $debug btree_maps formatting

zlib/build.sh
