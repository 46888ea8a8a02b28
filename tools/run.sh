#!/usr/bin/env bash
# Builds the command `stoplog` and runs it with the arguments given.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
"$root/tools/setup.sh"
exec cargo run --manifest-path "$root/Cargo.toml" --release --locked --quiet --bin stoplog -- "$@"
