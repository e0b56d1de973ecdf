#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Every #include in src/ follows tools/layers.txt; bench/ sees the public API, bind/ compat too.
# What stands for an engine has real times, but for computing: its program uses no simulator.
import re

import csource

ENGINE = re.compile(r"src/(engine/|cli/engine)")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)


def layers():
    table = {}
    for line in csource.read("tools/layers.txt").splitlines():
        if line.strip() and not line.startswith("#"):
            folder, _, below = line.partition("->")
            table[folder.strip()] = set(below.split())
    return table


def main():
    table = layers()
    problems = []
    for name in csource.files(".c", ".h", under=("include", "src", "bench", "bind")):
        text = csource.read(name)
        top, *rest = name.split("/")
        layer = rest[0] if top == "src" and len(rest) > 1 else None
        if layer and layer not in table:
            problems.append(f"{name}:1: src/{layer} is not in tools/layers.txt")
            continue
        for match in INCLUDE.finditer(text):
            wanted = match[1].split("/")[0]
            at = f"{name}:{csource.line_of(text, match.start())}:"
            if wanted == "sim" and ENGINE.match(name):
                problems.append(f"{at} an engine uses no simulator")
            if wanted == "yuebing" or "/" not in match[1] or wanted not in table:
                continue  # Public, the same folder by bare name, or a system header.
            if top == "bind" and wanted == "compat":
                continue  # What a binding is of.
            if layer is None:
                problems.append(f"{at} {top}/ may include only yuebing/, not {match[1]}")
            elif "/wire/" in match[1] and "net" in table[layer]:
                continue  # Frames stand on net alone; who speaks to a higher layer needs them.
            elif wanted != layer and wanted not in table[layer] and "*" not in table[layer]:
                problems.append(f"{at} {layer} may not include {match[1]}: see tools/layers.txt")
            elif match[1].endswith("_internal.h") and wanted != layer:
                problems.append(f"{at} {match[1]} is for its own folder")
    csource.report(problems)


main()
