#!/usr/bin/env bash
# Builds the command and the tools for the work they do: compiled once to count, run over updates, proofs, files and a whole
# archive, and compiled again by what was counted. The binaries are in target/pgo/HOST/release. benches/RESULTS.md says what it gains.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
profdata=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
if [ ! -x "$profdata" ]; then
    if ! command -v rustup >/dev/null; then
        echo "llvm-profdata of this toolchain is missing and there is no rustup to install it with: install llvm-tools" >&2
        exit 1
    fi
    rustup component add llvm-tools
fi

counts=$PWD/target/pgo/counts
rm -rf "$counts"
# A target is named so that build scripts and macros are left as they are.
build() {
    cargo build --release --target "$host" --target-dir "$1" -p icecore-cli -p icecore-tools
}

RUSTFLAGS="-Cprofile-generate=$counts" build target/pgo/counting
trained=target/pgo/counting/$host/release
"$trained/icecore-figures" hot --small >/dev/null
"$trained/icecore-figures" files --entries 300000 --cold-keys 200 --unknown-keys 100000 >/dev/null
"$trained/icecore" demo >/dev/null
"$profdata" merge -o "$counts/all.profdata" "$counts"/*.profraw
RUSTFLAGS="-Cprofile-use=$counts/all.profdata" build target/pgo
echo "built: target/pgo/$host/release/icecore, icecore-figures, icecore-probe, icecore-gen"
