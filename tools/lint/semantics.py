#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Every row of docs/semantics.md names a test that exists, and every call of client.h has a table.
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/semantics.md"
NAME = re.compile(r"`(unit|sim|system|regress)/(\w+):(\w+)`")
# What has a table, and under which heading.
CALLS = {
    "put": "put", "get": "get", "exist": "exist", "remove": "remove", "remove_all": "remove_all",
    "remove_matching": "remove_matching", "pin": "pin", "release": "release", "list": "list",
    "drain": "drain", "submit": "submit", "poll": "poll", "wait": "wait", "cancel": "cancel",
    "finish": "finish",
}


def why_missing(folder, name, function):
    """Why a test is not there, or None."""
    for suffix, pattern in ((".py", r"^def {}\(\):"), (".c", r"^{}\(void \*\*state\)")):
        path = ROOT / "tests" / folder / (name + suffix)
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            if re.search(pattern.format(re.escape(function)), text, re.M):
                return None
            return f"tests/{folder}/{path.name} has no {function}"
    return f"no tests/{folder}/{name}"


def main():
    problems, headings = [], []
    for number, line in enumerate((ROOT / PAGE).read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("## "):
            headings += re.findall(r"\w+", line)
        if not line.startswith("| ") or line.rstrip().endswith("| test |"):
            continue
        names = NAME.findall(line.rsplit("|", 2)[1])
        if not names:
            problems.append(f"{PAGE}:{number}: the row names no test")
        for name in names:
            why = why_missing(*name)
            if why:
                problems.append(f"{PAGE}:{number}: {why}")
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
