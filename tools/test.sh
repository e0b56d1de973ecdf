#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the suites and ends with one line: N passed, N failed, N skipped. Exit 0 if none failed.
# Usage: tools/test.sh short BUILD | all BUILD | asan | tsan
set -u
cd "$(dirname "$0")/.." || exit 2

mode=${1:?short, all, asan or tsan}
build=${2:-build}
patience=1 # Long forms take several times as long as a test may otherwise.
scores=$(mktemp -d) # One file per part of the run: "passed failed skipped".
trap 'rm -rf "$scores"' EXIT

# A sanitizer that only prints would let a test pass.
export ASAN_OPTIONS=abort_on_error=1:detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:history_size=4
TSAN_OPTIONS=$TSAN_OPTIONS:suppressions=$PWD/tests/tsan.supp

suites() { # LABEL BUILD [MESON-TEST-OPTION...]
    local label=$1 dir=$2
    shift 2
    echo "== $label"
    rm -f "$dir/meson-logs/testlog.json"
    meson test -C "$dir" --no-rebuild --print-errorlogs "$@" </dev/null || true
    tools/test_count.py "$dir/meson-logs/testlog.json" >"$scores/$label" ||
        echo "0 1 0" >"$scores/$label"
}

configured() { # BUILD MESON-SETUP-OPTION...: configure once, then build
    local dir=$1
    shift
    [ -f "$dir/build.ninja" ] || CC=clang meson setup "$dir" -Db_lundef=false -Dbuildtype=debug \
        -Doptimization=1 "$@" || return 1
    ninja -C "$dir"
}

sanitized() { # LABEL SANITIZERS [WRAPPER]
    echo "== $1 build"
    if configured "build-$1" "-Db_sanitize=$2"; then
        suites "$1" "build-$1" --timeout-multiplier $((5 * patience)) --no-suite lint \
            --no-suite install ${3:+--wrapper "$3"}
    else
        echo "0 1 0" >"$scores/$1"
    fi
}

thread_sanitizer() {
    # Kernels that randomise more address bits than clang 14 knows need setarch -R.
    local probe=$scores/.probe
    echo 'int main(void) { return 0; }' | clang -fsanitize=thread -x c - -o "$probe"
    if "$probe" 2>/dev/null; then
        sanitized tsan thread
    elif setarch -R "$probe" 2>/dev/null; then
        sanitized tsan thread "setarch -R"
    else
        echo "== tsan skipped: this kernel's address layout does not suit ThreadSanitizer"
        echo "0 0 1" >"$scores/tsan"
    fi
}

mutants() { # [OPTION...]
    echo "== mutants"
    # In the short form: a test that runs out of time says nothing about a mutant.
    env -u YUEBING_TEST_LONG tools/mutants.py --score "$scores/mutants" "$@" || true
    [ -s "$scores/mutants" ] || echo "0 1 0" >"$scores/mutants"
}

fuzz() {
    echo "== fuzz"
    tools/fuzz.sh "$scores/fuzz" || true
    [ -s "$scores/fuzz" ] || echo "0 1 0" >"$scores/fuzz"
}

python_packages() { # short|all
    tools/python_test.sh "$1" "$scores/python" || true
    [ -s "$scores/python" ] || echo "0 1 0" >"$scores/python"
}

connectors() {
    echo "== connectors"
    tests/connectors/run.sh "$build" "$scores/connectors" || true
    [ -s "$scores/connectors" ] || echo "0 1 0" >"$scores/connectors"
}

case $mode in
short)
    suites plain "$build" --no-suite long
    python_packages short
    mutants --sample 8
    ;;
asan) sanitized asan address,undefined ;;
tsan) thread_sanitizer ;;
all)
    export YUEBING_TEST_LONG=1
    patience=10
    suites plain "$build" --timeout-multiplier "$patience"
    python_packages all
    connectors
    sanitized asan address,undefined
    thread_sanitizer
    fuzz
    mutants
    ;;
*)
    echo "test.sh: unknown mode '$mode'" >&2
    exit 2
    ;;
esac

passed=0 failed=0 skipped=0
for score in "$scores"/*; do
    read -r p f s <"$score"
    printf '%-10s %5d passed, %d failed, %d skipped\n' "$(basename "$score")" "$p" "$f" "$s"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
# Nothing that passed is not success: it means that no test was found.
[ "$passed" -gt 0 ] || failed=$((failed + 1))
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
