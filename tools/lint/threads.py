#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Every thread begins with yb_cpus_as_process() (base/cpus.h), but in the simulator and commands.
#
# A thread inherits the affinity of the one that makes it. Where that is an engine's, which is bound
# to a core of its own, ours would share that core with its computing.
import re

import csource

CREATE = re.compile(r"\bpthread_create\(([^;]*?)\)\s*(?:[!=]=|\)|;|&&)", re.S)
SPARED = ("src/cli/", "src/sim/")


def main():
    problems, bodies, made = [], {}, []
    for name in csource.files(".c", under=("src",)):
        code = csource.blank(csource.read(name))
        for function, _, _, body in csource.functions(code):
            bodies[name, function] = bodies["", function] = body
        if not name.startswith(SPARED):
            made += [(name, csource.line_of(code, match.start()), match[1].split(",")[2].strip())
                     for match in CREATE.finditer(code)]
    for name, number, function in made:
        body = bodies.get((name, function), bodies.get(("", function)))
        if body is None or "yb_cpus_as_process();" not in body:
            problems.append(f"{name}:{number}: {function}() does not begin with"
                            " yb_cpus_as_process()")
    csource.report(problems)


main()
