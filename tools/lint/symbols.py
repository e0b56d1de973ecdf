#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Libraries export exactly the YB_API functions, versioned; every global symbol inside carries yb_.
import os
import re
import subprocess

import csource

BUILD = csource.ROOT / os.environ.get("BUILD", "build")
API = re.compile(r"\bYB_API\b[^;{]*?\b(\w+)\s*\(", re.S)


def symbols(path, *options):
    """Yield (type, name) of each defined symbol."""
    out = subprocess.run(["nm", "--defined-only", *options, str(path)], check=True,
                         capture_output=True, text=True).stdout
    for line in out.splitlines():
        fields = line.split()
        if len(fields) >= 2 and len(fields[-2]) == 1:
            yield fields[-2], fields[-1]


def promised():
    names = set()
    for header in csource.files(".h", under=("include",)):
        code = re.sub(r"^\s*#.*?(?<!\\)$", "", csource.blank(csource.read(header)), flags=re.M)
        names |= set(API.findall(code))
    return names


def main():
    shared, core = BUILD / "src/libyuebing.so", BUILD / "src/libyuebing_core.a"
    static = BUILD / "src/libyuebing.a"
    if not shared.exists() or not core.exists():
        print(f"{BUILD}: build first (make)")
        raise SystemExit(77)
    problems = []
    api = promised()
    exported = {}
    for kind, name in symbols(shared, "-D"):
        if kind not in "Aa":
            base, _, version = name.partition("@")
            exported[base] = version.lstrip("@")
    for name in sorted(api - exported.keys()):
        problems.append(f"libyuebing.so lacks {name}, which a public header declares with YB_API")
    for name, version in sorted(exported.items()):
        if name not in api:
            problems.append(f"libyuebing.so exports {name}, which no public header declares")
        elif not version.startswith("YUEBING_"):
            problems.append(f"libyuebing.so exports {name} without a version (src/yuebing.map)")
    if static.exists():
        for kind, name in symbols(static, "-g"):
            if name not in api:
                problems.append(f"libyuebing.a exports {name}, which no public header declares")
    for kind, name in symbols(core, "-g"):
        if not name.startswith(("yb_", "__odr_asan", "__start_", "__stop_")):
            problems.append(f"the core defines the global symbol {name} without the prefix yb_")
    csource.report(problems)


main()
