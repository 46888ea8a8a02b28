#!/bin/sh
# Runs the interleavings of the ring and of the wake-up protocol under loom.
#
# --cfg loom     swaps the atomics, cells and threads of src/sync for loom's
# --release      loom executes each test thousands of times; without link-time optimisation, which takes longer than it saves
# preemptions    loom skips schedules in which threads are interrupted more often than this; the bugs such tests can find
#                need one or two. 0 lifts the bound: a few tests then take very long.
#
# usage: tools/loom.sh [test filter]
set -eu
cd "$(dirname "$0")/.."
: "${CARGO_TARGET_DIR:=target/loom}"
: "${LOOM_MAX_PREEMPTIONS:=3}"
[ "$LOOM_MAX_PREEMPTIONS" != 0 ] || unset LOOM_MAX_PREEMPTIONS
export CARGO_TARGET_DIR
[ -z "${LOOM_MAX_PREEMPTIONS:-}" ] || export LOOM_MAX_PREEMPTIONS
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
RUSTFLAGS="${RUSTFLAGS:-} --cfg loom" exec cargo test --release --lib "${1:-loom_}"
