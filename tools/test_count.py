#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Count the cases in a Meson test log: prints "passed failed skipped".

A test that prints TAP lines ("ok 1 - name") counts once per line, any other test
counts once. A test that Meson calls failed has at least one failed case, whatever
it printed, and cases that its TAP plan announces but never reports have failed.
"""
import json
import re
import sys

TAP_LINE = re.compile(r"^(not )?ok \d+(.*)$", re.M)
TAP_PLAN = re.compile(r"^1\.\.(\d+)\s*$", re.M)


def count(test):
    """Return (passed, failed, skipped) of one line of testlog.json."""
    outcome = test["result"]
    if outcome == "SKIP":
        return 0, 0, 1
    output = test.get("stdout") or ""
    passed = failed = skipped = 0
    for negated, rest in TAP_LINE.findall(output):
        if "# SKIP" in rest:
            skipped += 1
        elif negated:
            failed += 1
        else:
            passed += 1
    announced = sum(int(n) for n in TAP_PLAN.findall(output))
    failed += max(0, announced - passed - failed - skipped)
    if outcome in ("OK", "EXPECTEDFAIL"):
        return (passed, failed, skipped) if passed + failed + skipped else (1, 0, 0)
    return passed, max(failed, 1), skipped


def main():
    totals = [0, 0, 0]
    with open(sys.argv[1], encoding="utf-8") as log:
        for line in log:
            totals = [a + b for a, b in zip(totals, count(json.loads(line)))]
    print(*totals)


main()
