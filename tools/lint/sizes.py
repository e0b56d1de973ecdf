#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Function 70 lines, file 1000, nesting 4, parameters 6, line 100, unless "lint: size, <reason>".
#
# The reason stands in a comment on the line before the function (or the long line), or in the
# first 40 lines of a long file.
import re

import csource

FUNCTION_LINES, FILE_LINES, NESTING, PARAMETERS, COLUMNS = 70, 1000, 4, 6, 100
EXCUSE = re.compile(r"lint: size, \S")
GENERATED = re.compile(r"\b[Gg]enerated by tools/gen/")


def nesting(body):
    """Return the depth of blocks in a function's body; braces of initialisers do not count."""
    depth = deepest = 0
    stack = []
    before = ";"
    for char in body:
        if char == "{":
            block = before in ");}{:eo"  # if (..) { / ; { / label: { / else { / do {
            stack.append(block)
            depth += block
            deepest = max(deepest, depth)
        elif char == "}" and stack:
            depth -= stack.pop()
        if not char.isspace():
            before = char
    return deepest


def parameters(text):
    depth, count = 0, 1
    for char in text:
        depth += (char == "(") - (char == ")")
        count += char == "," and depth == 0
    return count


def excused(lines, first):
    """Return whether the comment right before line `first` (counted from 1) gives a reason."""
    at = first - 2
    while at >= 0 and lines[at].strip() and not lines[at].startswith(("}", "#")):
        if EXCUSE.search(lines[at]):
            return True
        at -= 1
    return False


def check_functions(name, lines, code):
    for function, params, first, body in csource.functions(code):
        size = body.count("\n") + params.count("\n") + 3
        beyond = [(size, FUNCTION_LINES, "lines"), (nesting(body), NESTING, "levels of nesting"),
                  (parameters(params), PARAMETERS, "parameters")]
        for value, limit, what in beyond:
            if value > limit and not excused(lines, first):
                yield f"{name}:{first}: {function}() has {value} {what}; the aim is {limit}"


def check(name):
    text = csource.read(name)
    lines = text.splitlines()
    if any(GENERATED.search(line) for line in lines[:10]):
        return  # Its generator is what people read.
    if len(lines) > FILE_LINES and not EXCUSE.search("\n".join(lines[:40])):
        yield f"{name}:1: {len(lines)} lines; the aim is {FILE_LINES}"
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\\").rstrip()  # The mark that joins macro lines is not text.
        if name.startswith("tools/gen/"):
            break  # Templates are as wide as what they write.
        if len(line) > COLUMNS and not (number > 1 and EXCUSE.search(lines[number - 2])):
            yield f"{name}:{number}: {len(line)} columns; the aim is {COLUMNS}"
    if name.endswith((".c", ".h")):
        yield from check_functions(name, lines, csource.blank(text))


csource.report([problem
                for name in csource.files(".c", ".h", ".py", ".sh",
                                          under=("include", "src", "tests", "bench", "tools"))
                for problem in check(name)])
