#!/usr/bin/env bash
# Compiles the hot layer for aarch64, lints it, and runs its tests under emulation: they compare what NEON hashes with the blake3
# crate and with the roots. On Debian and its kin, as root, what it needs is installed; elsewhere it says what is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=aarch64-unknown-linux-gnu
compiler=aarch64-linux-gnu-gcc
emulator=qemu-aarch64

present() {
    command -v "$compiler" >/dev/null && command -v "$emulator" >/dev/null
}

if ! present && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update
    apt-get install -y --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
fi
if ! present; then
    echo "$compiler or $emulator is not installed: on Debian they are in gcc-aarch64-linux-gnu and qemu-user" >&2
    exit 1
fi
if command -v rustup >/dev/null; then
    rustup target add "$target"
fi

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$compiler
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$emulator -L /usr/aarch64-linux-gnu"
cargo clippy -p icecore-hot --all-targets --target "$target" -- -D warnings
cargo test -p icecore-hot --target "$target"
