# SPDX-License-Identifier: Apache-2.0
"""S36 for transfers: bounded connections, little left behind, no core used by waiting."""
from engines import Engine
from yuebing import (LONG, SLOWER, TIME_WAIT, case, connections, cpu_seconds, expect, main, split,
                     until, window)

THREADS = 64
TRANSFERS = 30_000 if LONG else 3_000
IDLE_S = 120 if LONG else 3
STALL_S = 10 if LONG else 2
STREAMS, CLASSES = 4, 3


@case("many threads share a few connections, which cost nothing when nobody uses them")
def _():
    with Engine() as target, Engine() as source:
        target.memory("x", 1 << 20, 1)
        region = target.register("x")
        peer, (_, port) = source.open(target.address), split(target.address)
        source.load(peer, THREADS, "read", region, 4096, 1, ms=20000)
        most = 0

        def done():
            nonlocal most
            most = max(most, connections(port))
            return source.loads().ok >= TRANSFERS / SLOWER

        until(done, "thousands of small transfers", 60 * SLOWER)
        found = source.unload()
        expect(found.failed == found.wrong == found.late == 0, f"{found}")
        cap = STREAMS * CLASSES + CLASSES
        expect(0 < most <= cap, f"{most} connections of one peer, {cap} are its bound")
        expect(connections(port, TIME_WAIT) < 100, "sockets left in TIME_WAIT")
        before = cpu_seconds(target.pid) + cpu_seconds(source.pid)
        window(IDLE_S)
        used = cpu_seconds(target.pid) + cpu_seconds(source.pid) - before
        expect(used < 0.01 * IDLE_S * SLOWER, f"idle: {used / IDLE_S:.2%} of a core")


@case("large transfers side by side arrive whole")
def _():
    size, threads = (64 << 20, 16) if LONG else (8 << 20, 8)
    with Engine(workers=2) as target, Engine(workers=2) as source:
        target.memory("x", size, 2)
        region = target.register("x")
        peers = [source.open(target.address) for _ in range(2)]
        for peer in peers:
            source.load(peer, threads // 2, "read", region, size, 2, ms=30000)
        until(lambda: source.loads().ok >= 2 * threads, "all have read", 120 * SLOWER)
        found = source.unload()
        expect(found.failed == found.wrong == found.late == 0, f"{found}")


@case("a transfer that waits for a target that is stopped uses no core")
def _():
    with Engine() as target, Engine() as source:
        target.memory("x", 16 << 20, 3)
        source.memory("y", 16 << 20)
        region = target.register("x")
        peer = source.open(target.address)
        expect(source.run(peer, "read", "y", 16 << 20, region).status == "OK", "warm")
        target.stop()
        batch = source.submit(peer, "read", "y", 16 << 20, region, ms=60000)
        window(0.2)
        before = cpu_seconds(source.pid)
        window(STALL_S)
        used = cpu_seconds(source.pid) - before
        target.go_on()
        expect(source.end(batch).status == "OK", "it goes on where it stood")
        source.do("check", "y", 3, 0, 16 << 20)
        expect(used < 0.02 * STALL_S * SLOWER, f"waiting: {used / STALL_S:.2%} of a core")


main()
