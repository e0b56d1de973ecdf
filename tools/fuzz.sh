#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzzer FUZZ_SECONDS seconds (default 20) on its kept corpus, under ASan and UBSan.
# New inputs stay in build-fuzz/corpus/NAME, crashes in build-fuzz/crashes/NAME.
# Usage: tools/fuzz.sh [SCORE-FILE]; FUZZ_ONLY=NAME runs one.
set -eu
cd "$(dirname "$0")/.."

score=${1:-/dev/null}
seconds=${FUZZ_SECONDS:-20}
build="build-fuzz"
passed=0 failed=0

[ -f "$build/build.ninja" ] || CC=clang meson setup "$build" -Dfuzz=true -Db_lundef=false \
    -Db_sanitize=address,undefined -Dbuildtype=debug -Doptimization=1
ninja -C "$build"

export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
for program in "$build"/tests/fuzz/fuzz_*; do
    if [ ! -f "$program" ] || [ ! -x "$program" ]; then
        continue
    fi
    name=$(basename "$program")
    name=${name#fuzz_}
    if [ -n "${FUZZ_ONLY:-}" ] && [ "$FUZZ_ONLY" != "$name" ]; then
        continue
    fi
    mkdir -p "$build/corpus/$name" "$build/crashes/$name"
    echo "== fuzz $name, $seconds s"
    if "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -verbosity=0 -artifact_prefix="$build/crashes/$name/" \
        "$build/corpus/$name" "tests/fuzz/corpus/$name" </dev/null; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "fuzz $name failed; the input lies in $build/crashes/$name"
    fi
done
echo "$passed $failed 0" >"$score"
echo "$passed fuzzers clean, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
