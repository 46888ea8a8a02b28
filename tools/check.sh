#!/usr/bin/env bash
# Everything that must hold before a change is done: format, lints, tests, documentation, benches (each once), interleavings of
# the lock-free parts under loom, and the unsafe parts under the thread and address sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh
for component in rustfmt clippy; do
    if ! cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1; then
        rustup component add "$component"
    fi
done
if ! cargo nextest --version >/dev/null 2>&1; then
    echo "installing cargo-nextest" >&2
    cargo install --locked --quiet cargo-nextest
fi
step() { printf '\n== %s\n' "$*" >&2; "$@"; }
step cargo fmt --check
step cargo clippy --locked --all-features --all-targets -- -D warnings
step cargo check --locked --no-default-features --lib
step cargo nextest run --locked --all-features
step cargo test --locked --all-features --doc
RUSTDOCFLAGS="-D warnings" step cargo doc --locked --no-deps --all-features
step cargo bench --locked --benches -- --test
step tools/loom.sh
step tools/sanitize.sh
