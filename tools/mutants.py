#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Show that the tests notice: every tests/mutants/*.mutant must make its test fail.

A mutant is a small change that breaks one documented rule, in one place or wherever the
rule is kept. It is applied in a copy of the tree (build-mutants/tree), built there, its test
is run and must fail, and the change is taken back. CONTRIBUTING.md describes the file format.

Exit 0 when every mutant that ran was caught; 1 when one survived, does not apply or
does not build.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build-mutants"
TREE = WORK / "tree"
BUILD = WORK / "build"
CHANGE = r"<<<<\n(?P<old>.*?)\n====\n(?P<new>.*?)\n?>>>>\s*"
FORMAT = re.compile(
    r"\A(?P<why>(?:#[^\n]*\n)+)file: (?P<file>\S+)\ntest: (?P<test>\S+)\n"
    r"(?P<changes>" + re.sub(r"\?P<\w+>", "", CHANGE) +
    r"(?:(?:file: \S+\n)?" + re.sub(r"\?P<\w+>", "", CHANGE) + r")*)\Z", re.S)
EACH = re.compile(r"(?:file: (?P<file>\S+)\n)?" + CHANGE, re.S)
SKIPPED = 77
WHEEL = "wheel"  # What a test of the Python packages is built as.
PYTHON = WORK / "python"


class Bad(Exception):
    """A mutant that cannot be judged, or a tree that cannot be built."""


def run(command, **options):
    return subprocess.run(command, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def sync_tree():
    """Make TREE equal to the tracked and new files here, touching only what differs."""
    if (ROOT / ".git").exists():
        listed = run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True)
        names = {n for n in listed.stdout.split("\0") if n and (ROOT / n).is_file()}
    else:  # A tarball.
        names = {str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file()}
        names = {n for n in names if not n.startswith("build")}
    for name in names:
        source, copy = ROOT / name, TREE / name
        if copy.is_file() and copy.read_bytes() == source.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.unlink(missing_ok=True)
        shutil.copyfile(source, copy)
        shutil.copymode(source, copy)
    for path in [p for p in TREE.rglob("*") if p.is_file()]:
        if str(path.relative_to(TREE)) not in names and "__pycache__" not in path.parts:
            path.unlink()


def configure():
    if not (BUILD / "build.ninja").exists():
        done = run(["meson", "setup", str(BUILD), str(TREE), "-Dwerror=false", "-Doptimization=1"])
        if done.returncode:
            raise Bad(done.stdout[-2000:])


def introspect():
    """Return {test name: (command, environment, workdir, [ninja targets])}."""
    # A build file may have changed with the tree; build.ninja regenerates itself.
    if run(["ninja", "-C", str(BUILD), "build.ninja"]).returncode:
        raise Bad("meson cannot configure the copied tree")
    told = run(["meson", "introspect", "--tests", "--targets", "-f", str(BUILD)], check=True)
    data = json.loads(told.stdout)
    outputs = {t["id"]: [os.path.relpath(f, BUILD) for f in t["filename"]]
               for t in data["targets"]}
    tests = {}
    for test in data["tests"]:
        targets = [f for i in test["depends"] for f in outputs[i]]
        tests[test["name"]] = (test["cmd"], test["env"], test["workdir"] or str(BUILD), targets)
    folder = TREE / "tests" / "python"
    for path in folder.glob("test_*.py"):
        command = [str(PYTHON / "bin" / "python"), "-m", "pytest", "-q", "-x", "-p",
                   "no:cacheprovider", path.name]
        tests[f"python/{path.stem}"] = (command, {"PYTHONDONTWRITEBYTECODE": "1"}, str(folder),
                                        WHEEL)
    return tests


def read_mutant(path):
    parsed = FORMAT.match(path.read_text(encoding="utf-8"))
    if not parsed:
        raise Bad("not in the format of CONTRIBUTING.md")
    changes, file = [], parsed["file"]
    for change in EACH.finditer(parsed["changes"]):
        file = change["file"] or file
        changes.append((file, change["old"], change["new"]))
    return parsed["test"], changes


def apply(changes, tree=TREE):
    """Return {path: changed text}; nothing is written."""
    texts = {}
    for file, old, new in changes:
        path = tree / file
        if path not in texts:
            texts[path] = path.read_text(encoding="utf-8") if path.is_file() else ""
        if texts[path].count(old) != 1:
            raise Bad(f"its text occurs {texts[path].count(old)} times in {file}")
        texts[path] = texts[path].replace(old, new)
    return texts


def build_wheel():
    """Install the copied tree's wheel in an environment of its own."""
    python = str(PYTHON / "bin" / "python")
    packages, ready = TREE / "tests" / "python" / "packages.txt", PYTHON / "ready"
    steps = [] if ready.exists() and ready.read_bytes() == packages.read_bytes() else [
        [sys.executable, "-m", "venv", str(PYTHON)],
        [python, "-m", "pip", "install", "-q", "-r", str(packages)],
        ["cp", str(packages), str(ready)]]
    steps += [[str(TREE / "tools" / "wheel.sh"), "one"],
              [python, "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps",
               "--no-index", "--find-links", str(TREE / "dist"), "yuebing"]]
    for step in steps:
        done = run(step, cwd=TREE)
        if done.returncode:
            raise Bad(f"{' '.join(step[:4])}: " + done.stdout.strip()[-400:])


def build(targets):
    if targets == WHEEL:
        build_wheel()
        return
    done = run(["ninja", "-C", str(BUILD), *targets])
    if done.returncode:
        tail = [line for line in done.stdout.splitlines() if "error" in line][:3]
        raise Bad("does not build: " + " | ".join(tail))


def run_test(test, timeout_s):
    """Return the exit status; None when the test ran into the time limit."""
    command, env, workdir, _ = test
    process = subprocess.Popen(command, cwd=workdir, env={**os.environ, **env},
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:  # What the test started dies with it, also when the test itself crashed.
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def judge(mutant, tests, healthy, timeout_s):
    """Return "caught", "survived" or "skipped"."""
    name, changes = mutant
    if name not in tests:
        raise Bad(f"names the test '{name}', which does not exist")
    test = tests[name]
    if name not in healthy:
        build(test[3])
        healthy[name] = run_test(test, timeout_s)
    if healthy[name] == SKIPPED:
        return "skipped"
    if healthy[name] != 0:
        raise Bad(f"test '{name}' fails without any mutant")
    changed = apply(changes)
    originals = {path: path.read_text(encoding="utf-8") for path in changed}
    try:
        for path, text in changed.items():
            path.write_text(text, encoding="utf-8")
        build(test[3])
        return "survived" if run_test(test, timeout_s) == 0 else "caught"
    finally:
        for path, text in originals.items():
            path.write_text(text, encoding="utf-8")


def choose(options):
    paths = sorted((ROOT / "tests" / "mutants").glob("*.mutant"))
    if options.only:
        paths = [p for p in paths if re.search(options.only, p.stem)]
    if options.sample:  # Those of the Python packages need a wheel each: not for a sample.
        paths = [p for p in paths if not p.stem.startswith("python-")]
    if options.sample and options.sample < len(paths):
        seed = options.seed or run(["git", "rev-parse", "HEAD"], cwd=ROOT).stdout.strip()
        paths = sorted(random.Random(seed).sample(paths, options.sample))
        print(f"mutants: a sample of {options.sample}, seed {seed}")
    return paths


def check(paths):
    """Say which mutants would not apply: a mutant has to be mended with the line that it quotes."""
    bad = 0
    for path in paths:
        try:
            apply(read_mutant(path)[1], ROOT)
        except Bad as reason:
            print(f"{path.relative_to(ROOT)}: {reason}", file=sys.stderr)
            bad += 1
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description="every mutant must make its test fail")
    parser.add_argument("--only", metavar="REGEX", help="only mutants whose file name matches")
    parser.add_argument("--sample", type=int, metavar="N", help="N of them, drawn by the seed")
    parser.add_argument("--seed", help="of the sample; default: the commit")
    parser.add_argument("--timeout", type=int, default=120, metavar="S", help="for one test run")
    parser.add_argument("--score", metavar="FILE", help='write "passed failed skipped" there')
    parser.add_argument("--check", action="store_true", help="only look whether they apply")
    options = parser.parse_args()

    paths = choose(options)
    if options.check:
        return check(paths)
    results = {"caught": 0, "survived": 0, "skipped": 0, "broken": 0}
    healthy = {}
    sync_tree()
    configure()
    tests = introspect()
    for path in paths:
        begin = time.monotonic()
        why = ""
        try:
            result = judge(read_mutant(path), tests, healthy, options.timeout)
        except Bad as reason:
            result, why = "broken", f"  {reason}"
        results[result] += 1
        print(f"{result:9} {path.stem:60} {time.monotonic() - begin:5.1f} s{why}", flush=True)

    bad = results["survived"] + results["broken"]
    if options.score:
        pathlib.Path(options.score).write_text(f"{results['caught']} {bad} {results['skipped']}\n")
    print(f"{results['caught']} caught, {results['survived']} survived"
          + "".join(f", {results[k]} {k}" for k in ("broken", "skipped") if results[k]))
    return 1 if bad else 0


try:
    sys.exit(main())
except Bad as reason:
    print(f"mutants: {reason}", file=sys.stderr)
    sys.exit(1)
