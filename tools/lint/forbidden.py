#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Functions that the house style forbids, each with what to use instead.
import re

import csource

# (functions, where, except there, instead)
RULES = [
    ("atoi atol atoll atof", "", (), "a parser that reports what it could not read"),
    ("strcpy strcat sprintf vsprintf gets stpcpy", "", (), "snprintf, or memcpy with a known size"),
    ("strtok", "", (), "strtok_r, or walk the text"),
    ("strncpy", "", (), "memcpy and an explicit NUL"),
    ("rand srand random srandom drand48", "", (), "a seeded generator that is passed in"),
    ("system popen", "", (), "posix_spawn with an argument vector"),
    ("alloca", "", (), "a fixed array or a pool"),
    ("getenv secure_getenv", "", ("src/base/config.c", "tests/unit/unit.h"),
     "a row of the config table"),
    ("sleep usleep nanosleep clock_nanosleep thrd_sleep", "", (),
     "injected time, a condition or an event"),
    ("time gettimeofday clock_gettime", "src/", ("src/base/clock.c", "src/base/lock.c"),
     "struct yb_clock"),
    ("exit _exit quick_exit", "src/", ("src/cli/", "src/daemon/"), "a status"),
    ("abort assert", "src/", ("src/base/check.c",), "YB_ASSERT"),
]
# Python tests do not sleep either; they wait for an event or poll with a deadline in one helper.
EXCUSE = re.compile(r"lint: allow, \S")


def main():
    problems = []
    for name in csource.files(".c", ".h"):
        text = csource.read(name)
        lines = text.splitlines()
        code = csource.blank(text)
        for functions, where, spared, instead in RULES:
            if not name.startswith(where) or name.startswith(spared or ("\0",)):
                continue
            pattern = r"(?<![\w.>])(?:%s)\s*\(" % "|".join(functions.split())
            for match in re.finditer(pattern, code):
                number = csource.line_of(code, match.start())
                if any(EXCUSE.search(line) for line in lines[max(0, number - 2):number]):
                    continue
                problems.append(f"{name}:{number}: {match.group().rstrip('( ')}() is not used here;"
                                f" instead: {instead}")
    csource.report(problems)


main()
