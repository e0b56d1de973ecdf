# SPDX-License-Identifier: Apache-2.0
"""S39, registering memory, as two processes: odd sizes, memory that is gone, and use meanwhile."""
from engines import PATIENCE_MS, Engine, Relay
from yuebing import LONG, case, expect, main, until

ODD = 1_000_000_007 if LONG else 100_000_007
BYTES = 1 << 20


@case("the same range is counted, an overlap is refused, and an odd size works to its last byte")
def _():
    with Engine() as target, Engine() as source:
        at = target.memory("x", ODD)
        source.memory("y", 4096, 1)
        region = target.register("x")
        expect(target.register("x") == region, "the same range has another id")
        expect(target.ask_raw("register_at", at + 1, 10) == "EXISTS", "an overlap")
        expect(target.ask_raw("register_at", at, ODD - 1) == "EXISTS", "an overlap at its start")
        peer = source.open(target.address)
        end = source.run(peer, "write", "y", 4096, region, offset=ODD - 4096)
        expect(end.status == "OK", f"{end}")
        source.do("set", "y", 0, 0, 4096)
        target.do("unregister", "x", 0)
        end = source.run(peer, "read", "y", 4096, region, offset=ODD - 4096)
        expect(end.status == "OK", f"after one unregister of two: {end}")
        source.do("check", "y", 1, 0, 4096)
        end = source.run(peer, "read", "y", 4096, region, offset=ODD - 4095)
        expect(end.status == "INVALID", f"a byte beyond: {end}")
        target.do("unregister", "x", 0)
        expect(target.ask_raw("unregister", "x", 0) == "NOT_FOUND", "a third time")
        end = source.run(peer, "read", "y", 1, region)
        expect(end.status == "STALE", f"{end}")


@case("memory that cannot be touched is FAULT, at register or later, and nobody else is hurt")
def _():
    with Engine() as target, Engine() as source, Engine() as bystander:
        at = target.memory("x", BYTES, 1)
        target.memory("ok", BYTES, 2)
        source.memory("y", BYTES, 3)
        expect(target.ask_raw("register_at", at - 4096, 4096) == "FAULT", "a guard page")
        expect(target.ask_raw("register_at", at - 4096, 8192) == "FAULT", "it and another")
        region, good = target.register("x"), target.register("ok")
        bystander.load(bystander.open(target.address), 2, "read", good, BYTES, 2, ms=20000)
        until(lambda: bystander.loads().ok > 0, "the bystander reads")
        peer = source.open(target.address)
        for page in (0, 100, 255):
            target.do("protect", "x", page * 4096, 4096, "none")
            for op in ("write", "read"):
                end = source.run(peer, op, "y", BYTES, region)
                expect(end.status == "FAULT" and not end.in_doubt, f"{op} at page {page}: {end}")
            end = source.run(peer, "write", "y", BYTES, region, items=256)
            expect(end.failed == 1 and end.bytes == BYTES - 4096, f"pages one by one: {end}")
            target.do("protect", "x", page * 4096, 4096, "all")
        source.do("protect", "y", 8192, 4096, "none")
        end = source.run(peer, "write", "y", BYTES, region, items=256)
        expect(end.failed == 1 and end.status == "FAULT", f"local: {end}")
        source.do("protect", "y", 8192, 4096, "all")
        expect(source.run(peer, "write", "y", BYTES, region).status == "OK", "healed")
        target.do("check", "x", 3, 0, BYTES)
        found = bystander.unload()
        expect(found.failed == found.wrong == found.late == 0, f"a bystander lost: {found}")


@case("unregister says BUSY, or waits, while a transfer is under way")
def _():
    size = 32 << 20
    with Engine() as target, Engine() as source, Relay(target.address) as relay:
        target.memory("x", size, 1)
        source.memory("y", size)
        region = target.register("x")
        peer = source.open(relay.address)
        expect(source.run(peer, "read", "y", 4096, region).status == "OK", "warm")
        relay.hold()
        batch = source.submit(peer, "read", "y", size, region, ms=60000)
        target.stop()  # Its answers are stuck in its own sockets, or not yet made.
        target.go_on()
        busy = target.ask_raw("unregister", "x", 0)
        relay.release()
        end = source.end(batch)
        if busy == "BUSY":
            expect(end.status == "OK", f"{end}")
            source.do("check", "y", 1, 0, size)
            target.do("unregister", "x", PATIENCE_MS)
        else:
            expect(end.status in ("STALE", "NOT_FOUND"), f"{busy} {end}")


main()
