#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# No return between the first `goto err...` of a function and its `err...:` label but the last.
#
# A return in the middle would leave past the unwinding of what was acquired before it.
import re

import csource

GOTO = re.compile(r"\bgoto (?:err|fail|out|done)\w*;")
LABEL = re.compile(r"^(?:err|fail|out|done)\w*:", re.M)
RETURN = re.compile(r"^(\s*)return\b", re.M)


def main():
    problems = []
    for name in csource.files(".c", under=("src",)):
        code = csource.blank(csource.read(name))
        for function, _, first, body in csource.functions(code):
            jump, label = GOTO.search(body), LABEL.search(body)
            if not jump or not label or label.start() < jump.start():
                continue
            for match in RETURN.finditer(body, jump.end(), label.start()):
                number = first + csource.line_of(body, match.start(1)) + 1
                if len(match[1].strip("\n")) > 4:
                    problems.append(f"{name}:{number}: {function}() returns past its unwinding"
                                    f" label '{label.group()}'")
    csource.report(problems)


main()
