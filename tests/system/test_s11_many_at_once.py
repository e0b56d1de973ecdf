# SPDX-License-Identifier: Apache-2.0
"""S11, sixty-four at once: distinct ports that are really theirs, all to all."""
import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

from engines import PATIENCE_MS, Engine
from yuebing import LONG, Wire, case, expect, main

COUNT = 64 if LONG else 16
BYTES = 4096


@case("engines that start together have ports of their own, and each reaches each")
def _():
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        with ThreadPoolExecutor(COUNT) as pool:
            engines = list(pool.map(lambda _: Engine(), range(COUNT)))
        for engine in engines:
            stack.enter_context(engine)
        addresses = [engine.address for engine in engines]
        expect(len(set(addresses)) == COUNT, f"an address twice: {addresses}")
        regions = []
        for number, engine in enumerate(engines):
            engine.memory("x", BYTES, number)
            engine.memory("y", COUNT * BYTES)
            regions.append(engine.register("x"))

        def visit(engine):
            bad = []
            for number in range(COUNT):
                peer = engine.open(addresses[number])
                end = engine.run(peer, "read", "y", BYTES, regions[number],
                                 begin=number * BYTES, ms=20000)
                if end.status != "OK":
                    bad.append((number, end))
                engine.do("close", peer)
            return bad

        with ThreadPoolExecutor(8) as pool:
            for bad in pool.map(visit, engines):
                expect(not bad, f"failed: {bad[:3]}")
        for number, engine in enumerate(engines[:8]):
            engine.memory("z", BYTES)
            for other in range(0, COUNT, 7):
                # The pattern counts from the start of a memory: compare by moving it back.
                peer = engine.open(engine.address)
                own = int(engine.do("register", "y"))
                expect(engine.run(peer, "read", "z", BYTES, own, offset=other * BYTES).status
                       == "OK", "own memory")
                engine.do("check", "z", other, 0, BYTES)
                engine.do("unregister", "y", PATIENCE_MS)
                engine.do("close", peer)


@case("a port that is taken is refused by name, and nobody listens elsewhere")
def _():
    with Engine() as first:
        second = Engine(listen=first.address)
        expect(second.answer.startswith("ADDRESS_IN_USE "), second.answer)
        expect(first.address in second.answer, f"which one? {second.answer}")
        second.quit()
        with Wire(first.address) as wire:
            wire.handshake()


main()
