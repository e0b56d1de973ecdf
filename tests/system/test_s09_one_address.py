# SPDX-License-Identifier: Apache-2.0
"""S09, several processes at one address: each gets its own bytes, and everybody the others'."""
from engines import Engine
from yuebing import LONG, case, expect, main, until, window

SECONDS = 60 if LONG else 3
BYTES = 256 << 10


@case("three processes of one host, and each of itself, read and write each other's memory")
def _():
    with Engine() as a, Engine() as b, Engine(workers=2) as c:
        engines = [a, b, c]
        regions = []
        for number, engine in enumerate(engines):
            engine.memory("x", BYTES, 100 + number)
            engine.memory("y", 16 * BYTES)
            regions.append((engine.register("x"), engine.register("y")))
        for number, engine in enumerate(engines):
            for other, target in enumerate(engines):
                peer = engine.open(target.address)
                engine.load(peer, 3, "read", regions[other][0], BYTES, 100 + other, ms=10000)
                engine.load(peer, 2, "write", regions[other][1], BYTES, 200 + number, ms=10000,
                            step=BYTES)
        window(SECONDS)
        for engine in engines:
            until(lambda e=engine: e.loads().ok > 20, "it goes on")
            found = engine.unload()
            expect(found.wrong == 0 and found.failed == 0 and found.late == 0, f"{found}")
        for number, engine in enumerate(engines):
            engine.do("check", "x", 100 + number, 0, BYTES)


main()
