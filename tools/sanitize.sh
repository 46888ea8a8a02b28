#!/bin/sh
# Runs the tests of the modules with unsafe code under a sanitizer: data races (thread) or bad accesses and leaks (address).
#
# RUSTC_BOOTSTRAP=1               -Z flags on the stable compiler; no nightly toolchain is needed
# opt-level=0                     dependencies are hardly used by these tests: build them fast
# --target                        keeps the flags away from build scripts and procedural macros
# -Cunsafe-allow-abi-mismatch     the standard library that comes with the compiler is not instrumented. The thread sanitizer
#                                 therefore does not see what std does, locks excepted; the ring itself is instrumented
#
# --cfg tsan (thread only)        the thread sanitizer does not know fences; the one place that needs one asks in another way
#
# usage: tools/sanitize.sh [thread|address|all] [test filter ...]
set -eu
cd "$(dirname "$0")/.."
which=${1:-all}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- ring:: sync:: state::heap::
target=$(rustc -vV | sed -n 's/^host: //p')
base_dir=${CARGO_TARGET_DIR:-target}

run() {
    sanitizer=$1
    shift
    echo "sanitizer: $sanitizer"
    cfg=
    [ "$sanitizer" != thread ] || cfg="--cfg tsan"
    CARGO_TARGET_DIR="$base_dir/sanitize-$sanitizer" RUSTC_BOOTSTRAP=1 \
        RUSTFLAGS="${RUSTFLAGS:-} $cfg -Zsanitizer=$sanitizer -Cunsafe-allow-abi-mismatch=sanitizer" \
        TSAN_OPTIONS="suppressions=$PWD/tools/tsan.supp ${TSAN_OPTIONS:-}" \
        cargo --config 'profile.dev.package."*".opt-level=0' test --target "$target" --lib -- "$@"
}

case $which in
thread | address) run "$which" "$@" ;;
all) run thread "$@" && run address "$@" ;;
*) echo "usage: $0 [thread|address|all] [test filter ...]" >&2 && exit 2 ;;
esac
