#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Every header compiles alone; the public ones as C11 and as C++17 without extensions.
import concurrent.futures
import os
import shutil
import subprocess

import csource

WARN = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-Iinclude"]
CC = os.environ.get("CC", "cc").split()
CXX = os.environ.get("CXX", "c++").split()


def compile_alone(job):
    name, command = job
    # Twice, so that the include guard is tried too.
    line = f'#include "{name}"\n#include "{name}"\nextern int yb_lint_unit;\n'
    done = subprocess.run(command + ["-I.", "-"], cwd=csource.ROOT, input=line,
                          capture_output=True, text=True)
    return f"{name}: {' '.join(command)}\n{done.stderr}" if done.returncode else None


def main():
    jobs = []
    for name in csource.files(".h", under=("include", "src", "tests")):
        if name.startswith("include/"):
            jobs.append((name, [*CC, *WARN, "-std=c11", "-Wpedantic", "-x", "c"]))
            if shutil.which(CXX[0]):
                jobs.append((name, [*CXX, *WARN, "-std=c++17", "-Wpedantic", "-x", "c++"]))
        else:
            jobs.append((name, [*CC, *WARN, "-Isrc", "-I" + os.path.dirname(name), "-D_GNU_SOURCE",
                                "-Wno-unused-function", "-std=gnu11", "-x", "c"]))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        csource.report([p for p in pool.map(compile_alone, jobs) if p])


main()
