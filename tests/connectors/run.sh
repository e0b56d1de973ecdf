#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel, installs it apart, and runs the engines' own connector files on it.
# Usage: tests/connectors/run.sh BUILD [SCORE [RUN-OPTION...]]
#
# SCORE is a file that gets "passed failed skipped". Options of run.py may follow (--only NAME).
set -u
cd "$(dirname "$0")/../.." || exit 2

build=${1:?the build folder, for the stand-in device}
score=${2:-/dev/null}
shift $(($# < 2 ? $# : 2))
work=$build/connectors
package=$PWD/$work/package
case $work in /*) package=$work/package ;; esac

fail() {
    echo "0 1 0" >"$score"
    echo "connectors: $1"
    echo "0 passed, 1 failed"
    exit 1
}

venv=$(tests/connectors/setup.sh "$work") || fail "no environment"
rm -rf dist "$package"
tools/wheel.sh one || fail "no wheel"
"$venv/bin/pip" install -q --disable-pip-version-check --no-deps --no-index --find-links dist \
    --target "$package" yuebing || fail "the wheel cannot be installed"
standin=$(realpath "$build/tests/device")
"$venv/bin/python" tests/connectors/run.py --package "$package" \
    --master "$package/yuebing/_bin/mooncake_master" --standin "$standin" \
    --build "$(realpath "$work")" "$@" | tee "$work/output.txt"
read -r passed failed < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' \
    "$work/output.txt" | tail -1) || passed=0 failed=1
echo "$passed $failed 0" >"$score"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
