#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Refuse a wheel that asks too much of the machine it is installed on.

Each program and library in it needs no newer C library than GLIBC_MAX and no library that is
neither of the C library nor in the wheel; the extension module shows its entry alone, so that
what it brings cannot meet another module's. Usage: wheel_check.py WHEEL...
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

GLIBC_MAX = (2, 34)
SYSTEM = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux-[\w-]+)\.so\.\d+$")
WANTED = ["mooncake/store.py", "mooncake/engine.py", "mooncake/_ours", "yuebing/__init__.py",
          "yuebing/_bin/yuebing", "yuebing/_bin/mooncake_master", "yuebing/_bin/mooncake_client",
          "yuebing/_bin/mooncake_http_metadata_server"]


def told(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_elf(path, inside):
    symbols = told("objdump", "-T", str(path))
    for major, minor in set(re.findall(r"GLIBC_(\d+)\.(\d+)", symbols)):
        if (int(major), int(minor)) > GLIBC_MAX:
            names = re.findall(rf"GLIBC_{major}\.{minor}\)?\s+(\S+)", symbols)
            yield f"needs GLIBC_{major}.{minor} for {', '.join(sorted(set(names))[:5])}"
    for needed in re.findall(r"NEEDED\s+(\S+)", told("objdump", "-p", str(path))):
        if not SYSTEM.match(needed) and needed not in inside:
            yield f"needs {needed}, which is not in the wheel"
    for where in re.findall(r"R(?:UN)?PATH\s+(\S+)", told("objdump", "-p", str(path))):
        if not all(part.startswith("$ORIGIN") for part in where.split(":")):
            yield f"looks for libraries in {where}"
    if path.name.startswith("_native."):
        shown = re.findall(r"^[0-9a-f]+ g .*\s(\S+)$", symbols, re.M)
        if shown != ["PyInit__native"]:
            yield f"shows {', '.join(shown[:5])}, not PyInit__native alone"
        outside = re.findall(r"\*UND\*.*\s((?:SSL_|EVP_|CRYPTO_|yb_)\S*)$", symbols, re.M)
        if outside:
            yield f"takes {', '.join(outside[:5])} from outside"


def check(wheel):
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        root = pathlib.Path(folder)
        files = [p for p in root.rglob("*") if p.is_file()]
        inside = {p.name for p in files}
        for name in WANTED:
            if not (root / name).exists():
                yield f"{name} is missing"
        if not list(root.glob("yuebing/_native.*")):
            yield "yuebing/_native is missing"
        for path in files:
            if path.read_bytes()[:4] == b"\x7fELF":
                for problem in check_elf(path, inside):
                    yield f"{path.relative_to(root)} {problem}"


def main():
    bad = False
    for wheel in sys.argv[1:]:
        problems = list(check(wheel))
        for problem in problems:
            print(f"{wheel}: {problem}")
        bad |= bool(problems)
        if not problems:
            print(f"{pathlib.Path(wheel).name}: nothing newer than "
                  f"GLIBC_{GLIBC_MAX[0]}.{GLIBC_MAX[1]}, nothing shown but its entry")
    sys.exit(bad or len(sys.argv) < 2)


main()
