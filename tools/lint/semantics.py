#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Every row of docs/semantics.md, docs/scenarios.md and docs/engines/calls.md names a test that is
# there, and every call of client.h has a table.
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/semantics.md"
SCENARIOS = "docs/scenarios.md"
ENGINES = "docs/engines/calls.md"
# `folder/file:function`, or `folder/file` "first words of its case".
NAME = re.compile(r"`(unit|sim|system|regress|python|connectors)/(\w+)(?::(\w+)`|` \"([^\"]+)\")")
# What has a table, and under which heading.
CALLS = {
    "put": "put", "get": "get", "exist": "exist", "remove": "remove", "remove_all": "remove_all",
    "remove_matching": "remove_matching", "pin": "pin", "release": "release", "list": "list",
    "drain": "drain", "submit": "submit", "poll": "poll", "wait": "wait", "cancel": "cancel",
    "finish": "finish",
}


def why_missing(folder, name, function, case):
    """Why a test is not there, or None."""
    for suffix, pattern in ((".py", r"^def {}\("), (".c", r"^{}\(void \*\*state\)")):
        path = ROOT / "tests" / folder / (name + suffix)
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            wanted = pattern.format(re.escape(function)) if function else \
                r'(^@case\("|harness\.case\(f"\{name\}: )' + re.escape(case)
            if re.search(wanted, text, re.M):
                return None
            return f"tests/{folder}/{path.name} has no {function or case}"
    return f"no tests/{folder}/{name}"


def rows_without_test(page, may_have_none):
    """What is wrong with the rows of a page; some may say "not here", and why."""
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("| ") or line.rstrip().endswith("| test |"):
            continue
        cell = line.rsplit("|", 2)[1].strip()
        names = NAME.findall(cell)
        if not names and not (may_have_none and cell.startswith("not here: ")):
            yield f"{page}:{number}: the row names no test"
        for name in names:
            why = why_missing(*name)
            if why:
                yield f"{page}:{number}: {why}"


def main():
    problems = [*rows_without_test(PAGE, False), *rows_without_test(SCENARIOS, True),
                *rows_without_test(ENGINES, False)]
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    headings = re.findall(r"\w+", " ".join(re.findall("^## .*", text, re.M)))
    for call, heading in CALLS.items():
        if heading not in headings:
            problems.append(f"{PAGE}:1: yb_client_{call}() has no table")
    header = (ROOT / "include/yuebing/client.h").read_text(encoding="utf-8")
    for call in CALLS:
        if f"yb_client_{call}(" not in header:
            problems.append(f"{PAGE}:1: there is no yb_client_{call}() any more")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
