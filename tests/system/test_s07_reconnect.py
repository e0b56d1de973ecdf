# SPDX-License-Identifier: Apache-2.0
"""S07, reconnecting without help: the next transfer succeeds inside its deadline."""
from engines import Engine, Relay
from yuebing import LONG, case, expect, main

ROUNDS = 20 if LONG else 8
BYTES = 1 << 20


@case("after every cut of all connections the next transfer succeeds, and its bytes are right")
def _():
    with Engine() as target, Engine() as source, Relay(target.address) as relay:
        target.memory("x", BYTES)
        source.memory("y", BYTES)
        region = target.register("x")
        peer = source.open(relay.address)
        for number in range(ROUNDS):
            op = "write" if number % 2 else "read"
            there, here = (target, "x"), (source, "y")
            source_of, sink_of = (here, there) if op == "write" else (there, here)
            source_of[0].do("fill", source_of[1], number, 0, BYTES)
            relay.cut()
            end = source.run(peer, op, "y", BYTES, region, items=10, ms=4000)
            expect(end.status == "OK" and end.bytes == BYTES, f"round {number}: {end}")
            sink_of[0].do("check", sink_of[1], number, 0, BYTES)


@case("a target that was killed and started again on its port is reached again")
def _():
    with Engine() as source:
        source.memory("y", BYTES)
        target = Engine()
        address = target.address
        peer = source.open(address)
        for number in range(ROUNDS):
            target.memory("x", BYTES)
            region = target.register("x")
            source.do("fill", "y", number, 0, BYTES)
            end = source.run(peer, "write", "y", BYTES, region, ms=4000)
            expect(end.status == "OK", f"round {number}: {end}")
            target.do("check", "x", number, 0, BYTES)
            target.kill()
            if number % 2:  # While nobody is there: it waits for its time, or hears the old life.
                end = source.run(peer, "write", "y", BYTES, region, ms=100)
                expect(end.status in ("REFUSED", "TIMED_OUT", "UNREACHABLE"), f"{end}")
            target = Engine(listen=address)
            expect(target.address == address, f"cannot start again: {target.answer}")
            if number % 2 == 0:  # A region of the old life is nobody's.
                end = source.run(peer, "write", "y", BYTES, region, ms=4000)
                expect(end.status in ("STALE", "NOT_FOUND"), f"{end}")
        with target:
            pass


main()
