#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# No mutable file-scope state outside src/daemon and src/cli; constants and thread-locals are fine.
# What cannot be anywhere else has a comment "lint: allow, REASON" on the line above its definition.
#
# Relocated constants lie in .data.rel.ro, so the section decides.
import os
import re
import subprocess

import csource

BUILD = csource.ROOT / os.environ.get("BUILD", "build")
WRITABLE = re.compile(r"^[0-9a-f]+ .{7} (\.(?:data|bss)\S*)\s+([0-9a-f]+)\s+(\S.*)$")
# What the compiler or a sanitizer makes for itself.
OWN = re.compile(r"^(\.|__asan|__odr|__ubsan|__sanitizer|__tsan|__func__|__PRETTY|\.L)")


def is_excused(member, name):
    """Whether the definition in the source of an object file (memory_process.c.o) says why."""
    stem = member.rsplit("/", 1)[-1].removesuffix(".o")
    for source in sorted((csource.ROOT / "src").rglob("*.c")):
        if "_".join(source.relative_to(csource.ROOT / "src").parts) != stem:
            continue
        lines = source.read_text().splitlines()
        for above, line in zip(lines, lines[1:]):
            if re.match(rf"static .*\b{re.escape(name)}\b\s*[;=]", line):
                return re.search(r"lint: allow, \S", above) is not None
    return False


def main():
    core = BUILD / "src/libyuebing_core.a"
    if not core.exists():
        print(f"{BUILD}: build first (make)")
        raise SystemExit(77)
    out = subprocess.run(["objdump", "-t", str(core)], check=True, capture_output=True,
                         text=True).stdout
    problems, member = [], ""
    for line in out.splitlines():
        if ":     file format" in line:
            member = line.split(":")[0]
        found = WRITABLE.match(line)
        if not found:
            continue
        section, size, name = found.groups()
        name = name.removeprefix(".hidden ")
        if section.startswith(".data.rel.ro") or int(size, 16) == 0 or OWN.match(name):
            continue
        if is_excused(member, name):
            continue
        problems.append(f"{member}: {name} ({int(size, 16)} bytes in {section}) can be written;"
                        " pass it in, make it const, or move it to src/daemon")
    csource.report(problems)


main()
