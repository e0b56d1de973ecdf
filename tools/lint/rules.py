#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Every rule of docs/rules.md has its place and mutants that exist, or waits for RDMA.
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/rules.md"
RULES = {"A": 17, "B": 6, "C": 10, "D": 13, "E": 5, "F": 11, "H": 8}
MUTANT = re.compile(r"`([\w-]+)` \(([\w-]+)\)")
CITED = re.compile(r"RULES ([A-H]\d+)")


def test_of(mutant):
    """The test that a mutant names, or None: there is no such mutant."""
    path = ROOT / "tests" / "mutants" / (mutant + ".mutant")
    found = path.is_file() and re.search(r"^test: (\S+)$", path.read_text(encoding="utf-8"), re.M)
    return found[1] if found else None


def problems_of(where, mutants):
    """What is wrong with the row of a rule."""
    for name in re.findall(r"`([^`]+)`", where):
        if not (ROOT / "src" / name).is_file():
            yield f"there is no src/{name}"
    if mutants.startswith("later: "):
        if not mutants.startswith("later: RDMA"):
            yield "only RDMA is not built"
        return
    if not where or not MUTANT.findall(mutants):
        yield "no place, or no mutant"
    for name, test in MUTANT.findall(mutants):
        if test_of(name) is None:
            yield f"there is no tests/mutants/{name}.mutant"
        elif test_of(name) != test:
            yield f"the test of {name} is {test_of(name)}"


def main():
    wanted = {f"{letter}{i}" for letter, last in RULES.items() for i in range(1, last + 1)}
    seen, problems = set(), []
    for number, line in enumerate((ROOT / PAGE).read_text(encoding="utf-8").splitlines(), 1):
        row = re.match(r"\| ([A-H]\d+) \| (.+) \| (.*) \| (.+) \|$", line)
        if not row:
            continue
        if row[1] in seen or row[1] not in wanted:
            problems.append(f"{PAGE}:{number}: {row[1]} is there twice, or is no rule")
        seen.add(row[1])
        problems += [f"{PAGE}:{number}: {row[1]}: {p}" for p in problems_of(row[3], row[4])]
    problems += [f"{PAGE}:1: {rule} has no row" for rule in sorted(wanted - seen)]
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        for rule in CITED.findall(path.read_text(encoding="utf-8")):
            if rule not in seen:
                problems.append(f"{path.relative_to(ROOT)}:1: cites {rule}, which has no row")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
