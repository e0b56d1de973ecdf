#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time the calls that engines make, on whatever module is named `mooncake`.

Two processes on this host, as two engines would be: a *holder*, which gives memory to the store
and registers a buffer with a transfer engine, and this one, which gives none, so that every value
goes to the other process and comes from it. Every row compares the bytes before it is timed.

    engine_calls.py --master 127.0.0.1:50051 [--run-ms 300] [--quick] [--only put,get,...]

prints one JSON line: {"module": ..., "rows": [{"call", "size", "batch", "value", "unit"}, ...]}.
A row that the module cannot do has "error" instead of "value", and both processes' stores and
engines are opened anew behind it: what broke there is not the next row's. The medians of one run
are taken over its calls; peer.py interleaves several runs.
"""

import argparse
import ctypes
import json
import mmap
import statistics
import subprocess
import sys
import time

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
HOST = "127.0.0.1"
LEASE_S = 600


class Memory:
    """Touched anonymous memory with an address."""

    def __init__(self, size):
        self.map = mmap.mmap(-1, size)
        self.size = size
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        ctypes.memset(self.address, 1, size)

    def fill(self, seed):
        """Give each 4 KiB bytes of its own, so that nothing in the wrong place looks right."""
        for at in range(0, self.size, 4 * KIB):
            stamp = (seed * 0x9E3779B97F4A7C15 + at * 0xC2B2AE3D27D4EB4F + 1) & (2**64 - 1)
            ctypes.memset(self.address + at, stamp & 0xFF, min(4 * KIB, self.size - at))
            ctypes.c_uint64.from_address(self.address + at).value = stamp

    def same(self, other, size):
        return bytes(memoryview(self.map)[:size]) == bytes(memoryview(other.map)[:size])


def open_store(args, segment):
    from mooncake.store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    code = store.setup(HOST, "P2PHANDSHAKE", segment, 64 * MIB, "tcp", "", args.master)
    if code != 0:
        raise RuntimeError(f"setup: {code}")
    return store


def open_engine():
    from mooncake.engine import TransferEngine

    engine = TransferEngine()
    code = engine.initialize(HOST, "P2PHANDSHAKE", "tcp", "")
    if code != 0:
        raise RuntimeError(f"initialize: {code}")
    return engine


# ---- the other process ----------------------------------------------------------------------


def hold(args):
    """Give memory, say where, and stay until the pipe closes."""
    store = open_store(args, args.segment)
    engine = open_engine()
    memory = Memory(args.remote_bytes)
    code = engine.register_memory(memory.address, memory.size)
    where = {
        "engine": f"{HOST}:{engine.get_rpc_port()}",
        "address": memory.address,
        "registered": code,
    }
    print("HOLDER " + json.dumps(where), flush=True)
    for line in sys.stdin:
        what = line.split()
        if what and what[0] == "sum":
            size = int(what[1])
            view = bytes(memoryview(memory.map)[:size])
            print("SUM " + json.dumps(hash_of(view)), flush=True)
    store.close()


def hash_of(view):
    import hashlib

    return hashlib.sha256(view).hexdigest()


class Holder:
    def __init__(self, args):
        command = [sys.executable, __file__, "--hold", "--master", args.master]
        command += ["--segment", str(args.segment), "--remote-bytes", str(args.remote_bytes)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.where = self.read("HOLDER ")

    def read(self, head):
        for line in self.process.stdout:
            if line.startswith(head):
                return json.loads(line[len(head) :])
        raise RuntimeError("the holder ended: see its messages above")

    def sum(self, size):
        self.process.stdin.write(f"sum {size}\n")
        self.process.stdin.flush()
        return self.read("SUM ")

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


# ---- rows -----------------------------------------------------------------------------------


def timed(run_ms, call, before=None):
    """Median seconds of a call; `before` is run, untimed, before each."""
    times = []
    until = time.monotonic() + run_ms / 1000
    while len(times) < 3 or (time.monotonic() < until and len(times) < 10000):
        number = len(times)
        if before is not None:
            before(number)
        start = time.perf_counter()
        call(number)
        times.append(time.perf_counter() - start)
        if len(times) >= 3 and sum(times) > 10:
            break
    return statistics.median(times)


def expect(what, got, want):
    if got != want:
        raise RuntimeError(f"{what}: got {str(got)[:120]}, not {str(want)[:60]}")


class Rows:
    def __init__(self, args):
        self.args = args
        self.rows = []
        self.round = 0
        self.open()

    def open(self):
        self.holder = Holder(self.args)
        self.store, self.engine = open_store(self.args, 0), open_engine()

    def close(self):
        self.store.close()
        self.store = self.engine = None
        self.holder.end()

    def row(self, call, size, batch, work):
        if self.args.only and call not in self.args.only:
            return
        if f"{call}/{size}/{batch}" in self.args.skip:
            return
        row = {"call": call, "size": size, "batch": batch}
        try:
            value, unit = work(size, batch)
            row.update(value=round(value, 4), unit=unit)
        except Exception as error:  # A row that cannot be had is named, not hidden.
            row["error"] = f"{type(error).__name__}: {error}"
            self.close()
            self.open()
        print(f"  {row}", file=sys.stderr, flush=True)
        self.rows.append(row)

    def keys(self, batch):
        self.round += 1
        stem = f"bench-{self.round:05d}@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@"
        return [stem + f"{i:064x}" for i in range(batch)]

    def drop(self, keys):
        self.store.remove_all(True)

    def put_get(self, size, batch, pieces, want_get):
        """Seconds for a batch; pieces > 1 goes through the multi_buffers calls."""
        source, into = Memory(size * batch), Memory(size * batch)
        source.fill(self.round + 1)
        store = self.store
        for memory in (source, into):
            expect("register_buffer", store.register_buffer(memory.address, memory.size), 0)
        piece = size // pieces

        def lists(memory):
            at = [memory.address + i * size for i in range(batch)]
            if pieces == 1:
                return at, [size] * batch
            return [[a + j * piece for j in range(pieces)] for a in at], [[piece] * pieces] * batch

        put = store.batch_put_from if pieces == 1 else store.batch_put_from_multi_buffers
        get = store.batch_get_into if pieces == 1 else store.batch_get_into_multi_buffers
        from_lists, into_lists = lists(source), lists(into)
        keys = self.keys(batch)
        try:
            expect("put", put(keys, *from_lists), [0] * batch)
            expect("get", get(keys, *into_lists), [size] * batch)
            if not source.same(into, size * batch):
                raise RuntimeError("the bytes differ")
            if want_get:
                want = [size] * batch
                return timed(
                    self.args.run_ms, lambda _: expect("get", get(keys, *into_lists), want)
                )
            sets = {}

            def before(number):
                self.drop(keys)
                sets[number] = self.keys(batch)

            return timed(
                self.args.run_ms,
                lambda number: expect("put", put(sets[number], *from_lists), [0] * batch),
                before,
            )
        finally:
            for memory in (source, into):
                store.unregister_buffer(memory.address)
            self.drop(keys)

    def put(self, size, batch, pieces=1):
        return size * batch / self.put_get(size, batch, pieces, False) / 1e9, "GB/s"

    def get(self, size, batch, pieces=1):
        return size * batch / self.put_get(size, batch, pieces, True) / 1e9, "GB/s"

    def exist(self, size, batch):
        keys = self.keys(batch)
        there = keys[: batch // 2]
        source = Memory(64 * len(there))
        self.store.register_buffer(source.address, source.size)
        at = [source.address + 64 * i for i in range(len(there))]
        for i in range(0, len(there), 500):  # More small ones at once the original does not take.
            some = slice(i, i + 500)
            sizes = [64] * len(there[some])
            expect(
                "put", self.store.batch_put_from(there[some], at[some], sizes), [0] * len(sizes)
            )
        want = [1] * len(there) + [0] * (batch - len(there))
        try:
            seconds = timed(
                self.args.run_ms, lambda _: expect("exist", self.store.batch_is_exist(keys), want)
            )
        finally:
            self.store.unregister_buffer(source.address)
            self.drop(keys)
        return batch / seconds / 1e6, "Mkeys/s"

    def is_exist(self, size, batch):
        key = self.keys(1)[0]
        expect("put", self.store.put(key, b"x" * 64), 0)
        seconds = timed(self.args.run_ms, lambda _: expect("is_exist", self.store.is_exist(key), 1))
        self.drop([key])
        return 1 / seconds, "calls/s"

    def put_bytes(self, size, batch):
        value = b"y" * size
        stem = self.keys(1)[0]
        seconds = timed(
            self.args.run_ms, lambda n: expect("put", self.store.put(stem + str(n), value), 0)
        )
        self.drop([])
        return 1 / seconds, "calls/s"

    def get_bytes(self, size, batch):
        key, value = self.keys(1)[0], b"z" * size
        expect("put", self.store.put(key, value), 0)
        seconds = timed(self.args.run_ms, lambda _: expect("get", self.store.get(key), value))
        self.drop([key])
        return 1 / seconds, "calls/s"

    def move(self, size, batch, write=True):
        where = self.holder.where
        total = size * batch
        local = Memory(total)
        local.fill(7 + batch)
        expect("register", self.engine.register_memory(local.address, total), 0)
        # As paged caches do: every other block, so that neighbours do not merge.
        order = [i for i in range(0, batch, 2)] + [i for i in range(1, batch, 2)]
        here = [local.address + i * size for i in order]
        there = [where["address"] + i * size for i in order]
        lengths = [size] * batch
        call = (
            self.engine.batch_transfer_sync_write
            if write
            else self.engine.batch_transfer_sync_read
        )
        try:
            write_call = self.engine.batch_transfer_sync_write
            expect("write", write_call(where["engine"], here, there, lengths), 0)
            if self.holder.sum(total) != hash_of(bytes(memoryview(local.map)[:total])):
                raise RuntimeError("the bytes differ")
            if not write:
                sent = bytes(memoryview(local.map)[:total])
                ctypes.memset(local.address, 0, total)
                expect("read", call(where["engine"], here, there, lengths), 0)
                if bytes(memoryview(local.map)[:total]) != sent:
                    raise RuntimeError("the bytes differ")
            seconds = timed(
                self.args.run_ms,
                lambda _: expect("transfer", call(where["engine"], here, there, lengths), 0),
            )
        finally:
            self.engine.unregister_memory(local.address)
        return total / seconds / 1e9, "GB/s"


def run(args):
    rows = Rows(args)
    full = not args.quick
    values = [(64 * KIB, 128), (1 * MIB, 64), (4 * MIB, 32)]
    if full:
        values = [(64 * KIB, 32), (64 * KIB, 512), (256 * KIB, 128), (1 * MIB, 32), (1 * MIB, 256)]
        values += [(4 * MIB, 32), (4 * MIB, 128)]
    for size, batch in values:
        rows.row("batch_put_from", size, batch, rows.put)
        rows.row("batch_get_into", size, batch, rows.get)
    for batch in (32, 128) if full else (32,):
        rows.row("batch_put_from_multi_buffers", 2 * MIB, batch, lambda s, b: rows.put(s, b, 64))
        rows.row("batch_get_into_multi_buffers", 2 * MIB, batch, lambda s, b: rows.get(s, b, 64))
    rows.row("put", 4 * KIB, 1, rows.put_bytes)
    rows.row("get", 4 * KIB, 1, rows.get_bytes)
    rows.row("is_exist", 0, 1, rows.is_exist)
    for batch in (100, 1000, 8000) if full else (1000,):
        rows.row("batch_is_exist", 0, batch, rows.exist)
    for batch in (10, 100, 1000, 10000) if full else (1000,):
        rows.row("batch_transfer_sync_write", 16 * KIB, batch, rows.move)
    for size, batch in [(16 * KIB, 1000)] + ([(4 * MIB, 32)] if full else []):
        rows.row("batch_transfer_sync_read", size, batch, lambda s, b: rows.move(s, b, False))
    if full:
        rows.row("batch_transfer_sync_write", 4 * MIB, 32, rows.move)
    rows.close()
    import mooncake

    print(json.dumps({"module": mooncake.__file__, "rows": rows.rows}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--master", default=f"{HOST}:50051", help="host:port of the master")
    parser.add_argument("--run-ms", type=int, default=300, help="time for each row")
    parser.add_argument("--quick", action="store_true", help="one size of each call")
    parser.add_argument("--only", type=lambda t: t.split(","), help="these calls only")
    parser.add_argument("--skip", type=lambda t: t.split(","), default=[], help=argparse.SUPPRESS)
    parser.add_argument("--segment", type=int, default=3 * GIB, help=argparse.SUPPRESS)
    parser.add_argument("--remote-bytes", type=int, default=256 * MIB, help=argparse.SUPPRESS)
    parser.add_argument("--hold", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    hold(args) if args.hold else run(args)


if __name__ == "__main__":
    main()
