#!/usr/bin/env bash
# Installs what a fresh Debian machine with Rust lacks for building: a C compiler (for zstd and the allocator).
set -euo pipefail
if ! command -v cargo >/dev/null 2>&1; then
    echo "Rust is missing: install it from https://rustup.rs and try again." >&2
    exit 1
fi
if ! command -v cc >/dev/null 2>&1; then
    echo "installing a C compiler" >&2
    as_root=""
    [ "$(id -u)" = 0 ] || as_root=sudo
    $as_root apt-get update -qq
    $as_root apt-get install -y -qq --no-install-recommends gcc libc6-dev
fi
