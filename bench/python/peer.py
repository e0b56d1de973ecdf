#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ours beside the known system, and beside Redis and LMCache's server, call by call.

Each side has a virtual environment of its own and a master of its own; the same script
(engine_calls.py, kv_server.py) runs in both, in turn, several rounds; a row's figures are the
medians of its rounds. A side that cannot run is listed with its error, and a row that it cannot do
is not asked of it again. No round is begun that would last beyond --minutes, judged by the longest
one so far.

    peer.py --ours VENV --peer VENV [--kv VENV] [--rounds 5] [--minutes 9] [--quick]
            [--only CALL,...]

prints a table on stderr and one JSON line on stdout:
    {"rows": [{"call", "size", "batch", "unit", "peer_name", "ours", "peer", "ratio"}, ...],
     "median_ratio": ..., "rounds": ..., "sides": {...}}
with ratio > 1: ours is faster.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
METADATA = {"is_exist", "batch_is_exist"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A process that listens on a port, with its output in a file."""

    def __init__(self, name, command, port, environment):
        self.log = tempfile.NamedTemporaryFile("w+", prefix=f"{name}-", suffix=".log")
        self.process = subprocess.Popen(
            command, stdout=self.log, stderr=subprocess.STDOUT, env=environment,
            start_new_session=True,
        )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise RuntimeError(f"{name} ended: {self.tail()}")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        self.end()
        raise RuntimeError(f"{name} does not listen: {self.tail()}")

    def tail(self):
        self.log.seek(0)
        return self.log.read()[-400:]

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


class Mooncake:
    """A venv with a package `mooncake` and its master."""

    def __init__(self, venv, options):
        self.venv, self.options = Path(venv), options
        self.cannot = set()  # Rows that failed: asked for once, they may take their time.
        self.environment = dict(os.environ, MC_FORCE_TCP="1", PYTHONHASHSEED="0")
        self.environment["PATH"] = f"{self.venv / 'bin'}:{self.environment['PATH']}"

    def run(self):
        port = free_port()
        master = [str(self.venv / "bin" / "mooncake_master"), f"--rpc_port={port}"]
        master.append(f"--metrics_port={free_port()}")
        server = Server("master", master, port, self.environment)
        try:
            command = [str(self.venv / "bin" / "python"), str(HERE / "engine_calls.py")]
            command += ["--master", f"127.0.0.1:{port}", "--skip", ",".join(sorted(self.cannot))]
            result = run_json(command + self.options, self.environment)
        finally:
            server.end()
        failed = [name_of(row) for row in result["rows"] if "error" in row]
        self.cannot.update("/".join(map(str, name)) for name in failed)
        return result


class KeyValue:
    """redis-server, or LMCache's own server, through their own clients."""

    def __init__(self, name, venv, options):
        self.name, self.venv, self.options = name, Path(venv), options

    def run(self):
        port = free_port()
        python = str(self.venv / "bin" / "python")
        if self.name == "redis":
            server = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no"]
            server += ["--bind", "127.0.0.1"]
        else:
            server = [python, "-m", "lmcache.v1.server", "127.0.0.1", str(port)]
        process = Server(self.name, server, port, dict(os.environ))
        try:
            command = [python, str(HERE / "kv_server.py"), self.name, str(port)]
            return run_json(command + self.options, dict(os.environ))
        finally:
            process.end()


def run_json(command, environment):
    try:
        done = subprocess.run(
            command, env=environment, timeout=900, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError("took longer than 900 s") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"module"')]
    if not lines:
        raise RuntimeError(f"status {done.returncode}: {done.stderr[-600:]}")
    return json.loads(lines[-1])


def run_rounds(sides, rounds, limit_s):
    """Let every side run in turn, until all rounds are done or the next one would take too long."""
    results, errors = {name: [] for name in sides}, {}
    began, longest_s = time.monotonic(), 0.0
    for number in range(rounds):
        round_began = time.monotonic()
        if round_began - began + longest_s > limit_s and number > 0:
            print(f"{number} rounds: another would last too long (--minutes)", file=sys.stderr)
            return results, errors, number
        for name, side in sides.items():
            if name in errors:
                continue
            side_began = time.monotonic()
            print(f"round {number + 1} of {rounds}: {name} ", end="", file=sys.stderr, flush=True)
            try:
                results[name].append(side.run())
                print(f"({time.monotonic() - side_began:.0f} s)", file=sys.stderr)
            except (RuntimeError, OSError) as error:
                errors[name] = str(error)
                print(f"cannot run: {error}", file=sys.stderr)
        longest_s = max(longest_s, time.monotonic() - round_began)
    return results, errors, rounds


def name_of(row):
    return row["call"], row["size"], row["batch"]


def gather(results):
    """Median per row over the rounds; a row that failed once is an error."""
    rows = {}
    for result in results:
        for row in result["rows"]:
            rows.setdefault(name_of(row), []).append(row)
    return rows


def compare(ours, peer, peer_name):
    out = []
    for name, theirs in peer.items():
        mine = ours.get(name, [])
        row = dict(zip(("call", "size", "batch"), name), peer_name=peer_name)
        named = (("ours", mine), (peer_name, theirs))
        errors = [f"{who}: {r['error']}" for who, side in named for r in side if "error" in r]
        values = [[r["value"] for r in side if "value" in r] for side in (mine, theirs)]
        if all(values):
            row["unit"] = theirs[0].get("unit") or mine[0]["unit"]
            row["ours"], row["peer"] = (round(statistics.median(v), 4) for v in values)
            row["ratio"] = round(row["ours"] / row["peer"], 2)
        if errors:
            row["error"] = errors[0]
        out.append(row)
    return out


def table(rows):
    head = f"{'call':32} {'size':>9} {'batch':>6} {'ours':>11} {'peer':>11} ratio  of"
    print(head, file=sys.stderr)
    for row in rows:
        figures = (
            f"{row['ours']:11.3f} {row['peer']:11.3f} {row['ratio']:5.2f}"
            if "ratio" in row
            else f"error: {row.get('error', '')[:100]}"
        )
        print(
            f"{row['call']:32} {row['size']:9} {row['batch']:6} {figures}  {row['peer_name']}"
            f" {row.get('unit', '')}",
            file=sys.stderr,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", required=True, help="venv with our wheel")
    parser.add_argument("--peer", help="venv with the original")
    parser.add_argument("--kv", help="venv with redis and lmcache")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=9, help="after which no round is begun")
    parser.add_argument("--quick", action="store_true", help="one size of each call")
    parser.add_argument("--run-ms", type=int, default=200, help="time for each row")
    parser.add_argument("--only", help="these calls only, apart by commas; without --kv")
    args = parser.parse_args()
    options = ["--run-ms", str(args.run_ms)] + (["--quick"] if args.quick else [])
    options += ["--only", args.only] if args.only else []
    sides = {"ours": Mooncake(args.ours, options)}
    if args.peer:
        sides["original"] = Mooncake(args.peer, options)
    if args.kv:
        sides["redis"] = KeyValue("redis", args.kv, options)
        sides["lmcache"] = KeyValue("lmcache", args.kv, options)
    results, errors, rounds = run_rounds(sides, args.rounds, args.minutes * 60)
    ours = gather(results["ours"])
    rows = []
    for name in sides:
        if name != "ours" and results[name]:
            rows += compare(ours, gather(results[name]), name)
    table(rows)
    ratios = [row["ratio"] for row in rows if row["peer_name"] == "original" and "ratio" in row]
    metadata = [
        row["ratio"]
        for row in rows
        if row["peer_name"] == "original" and row["call"] in METADATA and "ratio" in row
    ]
    out = {"rows": rows, "rounds": rounds, "sides": {n: errors.get(n, "ran") for n in sides}}
    if ratios:
        out["median_ratio"] = round(statistics.median(ratios), 2)
        out["least_ratio"] = min(ratios)
        out["least_metadata_ratio"] = min(metadata, default=None)
    print(json.dumps(out))
    return 1 if "ours" in errors else 0


if __name__ == "__main__":
    sys.exit(main())
