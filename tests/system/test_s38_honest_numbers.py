# SPDX-License-Identifier: Apache-2.0
"""S38 for transfers: what the statistics say is what happened."""
from engines import ONLY_TCP, Engine
from yuebing import case, expect, main

BYTES = 10_007


def path_of(engine, peer):
    row = next(row for row in engine.stats()["peers"] if row["peer"] == peer)
    return {path["path"]: path for path in row["paths"]}


def sums(engine, peer):
    paths = path_of(engine, peer).values()
    return {word: sum(path[word] for path in paths)
            for word in ("bytes_read", "bytes_written", "failures", "flying")}


@case("bytes are counted once, per peer and direction, and refusals by their reason")
def _():
    with Engine() as target, Engine() as source:
        target.memory("x", BYTES, 1)
        source.memory("y", BYTES, 1)
        region = target.register("x")
        peer, idle = source.open(target.address), source.open(target.address)
        for _ in range(60):
            expect(source.run(peer, "read", "y", BYTES, region, items=7).status == "OK", "read")
        for _ in range(40):
            expect(source.run(peer, "write", "y", BYTES, region, items=3).status == "OK", "write")
        found = sums(source, peer)
        expect(found == {"bytes_read": 60 * BYTES, "bytes_written": 40 * BYTES, "failures": 0,
                         "flying": 0}, f"{found}")
        expect(sums(source, idle)["bytes_read"] == 0, "counted for another handle")
        expect(target.stats()["refused"] == {}, "refused without a reason")
        for _ in range(500):
            expect(source.run(peer, "write", "y", 10, region + 1).status == "NOT_FOUND", "refused")
        for _ in range(100):
            expect(source.run(peer, "read", "y", 10, region, offset=BYTES).status == "INVALID",
                   "outside")
        counted = target.stats()["refused"]
        if ONLY_TCP:  # By shared memory most of them are refused before they are sent.
            expect(counted == {"NOT_FOUND": 500, "INVALID": 100}, f"{counted}")
        found = sums(source, peer)
        expect(found["bytes_written"] == 40 * BYTES, f"refused bytes are counted: {found}")


@case("a peer that is gone is counted as failures, and the numbers of others stay")
def _():
    with Engine() as other, Engine() as source:
        target = Engine()
        for engine in (target, other):
            engine.memory("x", BYTES, 1)
            engine.register("x")
        source.memory("y", BYTES)
        there = source.open(other.address)
        peer = source.open(target.address)
        expect(source.run(there, "read", "y", 1, other.register("x")).status == "OK", "other")
        expect(source.run(peer, "read", "y", 1, target.register("x")).status == "OK", "target")
        target.kill()
        end = source.run(peer, "read", "y", BYTES, 1, ms=300)
        expect(end.status != "OK" and end.bytes == 0, f"{end}")
        expect(sums(source, peer)["failures"] > 0, "nobody failed")
        expect(sums(source, there) == {"bytes_read": 1, "bytes_written": 0, "failures": 0,
                                       "flying": 0}, "counted for the other")


main()
