# SPDX-License-Identifier: Apache-2.0
"""S02, addresses from the wire: hand-made frames move no byte that they must not."""
import os
import struct

from engines import BY_ADDRESS, PATIENCE_MS, Engine
from yuebing import SLOWER, Wire, case, crc32c, expect, frame, main, until

BYTES = 64 << 10
WRITE, READ, UNKNOWN = 16, 17, 99
INVALID, NOT_FOUND, STALE, TOO_LARGE, UNSUPPORTED = -2, -3, -21, -22, -26
ROUNDS = 200
ONLY_WRITES = {"more data than fragments", "less data than fragments"}  # A read has no data.


def fragments(*rows, count=None):
    return struct.pack("<I4x", len(rows) if count is None else count) + b"".join(
        struct.pack("<QQQ", *row) for row in rows)


def answer(wire):
    """Return (status, [status of each refused fragment], data length); None: it was closed."""
    try:
        head = wire.receive(96)
        expect(crc32c(head[:92]) == struct.unpack("<I", head[92:])[0], "bad CRC in a reply")
        status, body_bytes = struct.unpack("<iI", head[12:20])
        data_bytes = struct.unpack("<Q", head[24:32])[0]
        body = wire.receive(body_bytes)
        wire.receive(data_bytes)
    except (EOFError, ConnectionResetError):
        return None
    count = struct.unpack("<I", body[:4])[0] if body else 0
    refused = [struct.unpack("<Ii", body[8 + 8 * i:16 + 8 * i])[1] for i in range(count)]
    return status, refused, data_bytes


def bad_ranges(target, region):
    """(what, fragment, bytes of data that a write of it sends, words it may be refused with)"""
    at, page = target.addresses["x"], target.addresses["y"]
    return [
        ("an unregistered page", (BY_ADDRESS, page, 4096), 4096, {NOT_FOUND, INVALID}),
        ("a guard page", (BY_ADDRESS, at - 4096, 4096), 4096, {NOT_FOUND, INVALID}),
        ("a byte too long", (BY_ADDRESS, at, BYTES + 1), BYTES + 1, {NOT_FOUND, INVALID}),
        ("a byte too long by region", (region, 0, BYTES + 1), BYTES + 1, {INVALID}),
        ("behind the end", (region, BYTES, 1), 1, {INVALID}),
        ("an address that wraps", (BY_ADDRESS, (1 << 64) - 4096, 8192), 8192,
         {NOT_FOUND, INVALID}),
        ("an offset that wraps", (region, (1 << 64) - 4096, 8192), 8192, {INVALID}),
        ("no such region", (region + 77, 0, 8), 8, {NOT_FOUND}),
        ("an older region", (region ^ (1 << 40), 0, 8), 8, {STALE, NOT_FOUND}),
        ("region zero", (0, 0, 8), 8, {NOT_FOUND}),
    ]


def lies(region):
    """(what, body, data that is announced, data that is sent)"""
    return [
        ("2^63 bytes", fragments((region, 0, 1 << 63)), 8, 8),
        ("2^48 bytes that are not sent", fragments((region, 0, 1 << 48)), 8, 8),
        ("more data than fragments", fragments((region, 0, 8)), 16, 16),
        ("less data than fragments", fragments((region, 0, 16)), 8, 8),
        ("sums that wrap", fragments(*[(region, 0, 1 << 48)] * 64), 8, 8),
        ("a count without fragments", fragments(count=2), 8, 8),
        ("a count of four billion", fragments((region, 0, 8), count=(1 << 32) - 1), 8, 8),
        ("65 fragments", fragments(*[(region, 0, 8)] * 65), 520, 520),
        ("no fragment", fragments(), 8, 8),
        ("half a fragment", fragments((region, 0, 8))[:-4], 8, 8),
        ("no body", b"", 8, 8),
        ("empty fragments only", fragments((region, 0, 0), (region, 1 << 60, 0)), 0, 0),
    ]


@case("ranges that are not the peer's are refused by name, and no byte moves")
def _():
    with Engine() as target, Engine() as bystander:
        target.memory("x", BYTES, 5)
        target.memory("y", BYTES, 6)
        region = target.register("x")
        bystander.load(bystander.open(target.address), 2, "read", region, BYTES, 5, ms=10000)
        with Wire(target.address) as wire:
            wire.handshake(lane=1)
            for number, (what, fragment, length, words) in enumerate(bad_ranges(target, region)):
                body = fragments((region, 0, 0), fragment)
                wire.send(frame(READ, body, 2 * number + 1))
                status, refused, data = answer(wire)
                expect(data == 0, f"read {what}: {data} bytes came")
                expect(status in words or (status == 0 and len(refused) == 1
                                           and refused[0] in words),
                       f"read {what}: {status} {refused}")
                wire.send(frame(WRITE, body, 2 * number + 2, data_bytes=length)
                          + os.urandom(length))
                status, refused, _ = answer(wire)
                expect(status in words or (status == 0 and len(refused) == 1
                                           and refused[0] in words),
                       f"write {what}: {status} {refused}")
            wire.send(frame(READ, fragments((region, 0, BYTES)), 1000))
            expect(answer(wire) == (0, [], BYTES), "the connection lives and reads")
        target.do("check", "x", 5, 0, BYTES)
        target.do("check", "y", 6, 0, BYTES)
        counted = target.stats()["refused"]
        expect(counted["NOT_FOUND"] >= 4 and counted["INVALID"] >= 6, f"{counted}")
        found = bystander.unload()
        expect(found.ok > 0 and found.failed == found.wrong == 0, f"a bystander lost: {found}")


@case("frames that lie about themselves are refused or end their connection, and cost no memory")
def _():
    with Engine() as target, Engine() as bystander:
        target.memory("x", BYTES, 5)
        region = target.register("x")
        bystander.load(bystander.open(target.address), 2, "read", region, BYTES, 5, ms=10000)
        until(lambda: bystander.loads().ok > 10, "the bystander reads")
        rss = 0
        for number in range(ROUNDS // SLOWER):
            if number == ROUNDS // SLOWER // 2:
                rss = target.rss()
            for what, body, announced, sent in lies(region):
                for kind in (WRITE, UNKNOWN) if what in ONLY_WRITES else (WRITE, READ, UNKNOWN):
                    with Wire(target.address) as wire:
                        wire.handshake(lane=1)
                        data = announced if kind == WRITE else 0
                        wire.send(frame(kind, body, 1, data_bytes=data)
                                  + (bytes(sent) if kind == WRITE else b""))
                        if number > 0:
                            continue
                        found = answer(wire)
                        expect(found is None or found[0] < 0 or found[1],
                               f"{kind} {what}: {found}")
        grown = target.rss() - rss
        expect(grown < (1 << 20) * SLOWER * SLOWER, f"{grown} bytes more")
        target.do("check", "x", 5, 0, BYTES)
        found = bystander.unload()
        expect(found.ok > 0 and found.failed == found.wrong == 0, f"a bystander lost: {found}")


@case("a writer that stops in the middle of its data leaves what it wrote, and nothing in use")
def _():
    with Engine() as target:
        target.memory("x", BYTES, 5)
        region = target.register("x")
        with Wire(target.address) as wire:
            wire.handshake(lane=1)
            wire.send(frame(WRITE, fragments((region, 100, 40000)), 1, data_bytes=40000)
                      + b"\x11" * 20000)
            until(lambda: target.ask_raw("glance", "x", 0x11, 100, 20000) == "ok", "they came")
            expect(target.ask_raw("unregister", "x", 0) == "BUSY", "it is not in use")
        target.do("unregister", "x", PATIENCE_MS)
        target.do("check", "x", 5, 0, 100)
        target.do("check", "x", 5, 20100, BYTES - 20100)


main()
