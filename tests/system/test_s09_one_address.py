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
            read = engine.register("x")
            written = []  # By whom.
            for other in range(len(engines)):
                engine.memory(f"y{other}", 2 * BYTES)
                written.append(engine.register(f"y{other}"))
            regions.append((read, written))
        peers = [[engine.open(target.address) for target in engines] for engine in engines]
        for number, engine in enumerate(engines):
            for other, peer in enumerate(peers[number]):
                engine.load(peer, 3, "read", regions[other][0], BYTES, 100 + other, ms=10000)
                engine.load(peer, 2, "write", regions[other][1][number], BYTES, 200 + number,
                            ms=10000, step=BYTES)
        window(SECONDS)
        for engine, to in zip(engines, peers):
            for peer in to:
                until(lambda e=engine, p=peer: e.loads(p).ok > 20, "it goes on")
            found = engine.unload()
            expect(found.wrong == 0 and found.failed == 0 and found.late == 0, f"{found}")
        for number, engine in enumerate(engines):
            engine.do("check", "x", 100 + number, 0, BYTES)
            for other in range(len(engines)):
                engine.do("check", f"y{other}", 200 + other, 0, 2 * BYTES)


main()
