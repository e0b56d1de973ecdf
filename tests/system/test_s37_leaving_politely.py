# SPDX-License-Identifier: Apache-2.0
"""S37 for transfers: an engine that goes while others use it, and a thousand that come and go."""
import time

from engines import Engine
from yuebing import LONG, SLOWER, case, expect, expect_soon, main, until

GRACE_S = 2.0
BYTES = 4 << 20
CYCLES = 1000 if LONG else 100


@case("an engine that is destroyed under load is gone in time, and its users see OK or a failure")
def _():
    for number in range(10 if LONG else 3):
        with Engine() as source:
            target = Engine(workers=1 + number % 2)
            target.memory("x", BYTES, 1)
            target.memory("y", 4 * BYTES)
            read, write = target.register("x"), target.register("y")
            peer = source.open(target.address)
            source.load(peer, 8, "read", read, BYTES, 1, ms=500)
            source.load(peer, 4, "write", write, BYTES, 2, ms=500, step=BYTES)
            until(lambda s=source: s.loads().ok > 20, "it is used")
            begun = time.monotonic()
            target.do("destroy")
            took = time.monotonic() - begun
            expect_soon(took, GRACE_S, "destroy")
            target.do("set", "y", 0x3c, 0, 4 * BYTES)  # Its memory is its own again.
            until(lambda s=source: s.loads().failed >= 12, "its users notice")
            target.do("same", "y", 0x3c, 0, 4 * BYTES)
            expect(target.quit() == 0, "its process ends well")
            found = source.unload()
            expect(found.wrong == found.late == 0, f"{found}")


@case("an engine that is destroyed in the middle of its own transfers leaves the memory alone")
def _():
    with Engine() as target:
        target.memory("x", BYTES, 1)
        region = target.register("x")
        for _ in range(5):
            source = Engine()
            source.memory("y", BYTES)
            peer = source.open(target.address)
            target.stop()
            source.submit(peer, "read", "y", BYTES, region)
            begun = time.monotonic()
            source.do("destroy")
            took = time.monotonic() - begun
            source.do("set", "y", 0x5d, 0, BYTES)
            target.go_on()
            expect_soon(took, GRACE_S, "destroy")
            source.do("same", "y", 0x5d, 0, BYTES)
            expect(source.quit() == 0, "its process ends well")


@case("engines that come and go leave no descriptor, no thread and no memory")
def _():
    with Engine() as target:
        target.memory("x", 4096, 1)
        region = target.register("x")
        source = Engine()
        source.memory("y", 4096)
        rss = 0
        with source:
            for number in range(CYCLES):
                if number == CYCLES // 5:
                    rss, threads = source.rss(), source.threads()
                    descriptors = source.descriptors()
                peer = source.open(target.address)
                expect(source.run(peer, "read", "y", 4096, region).status == "OK", f"{number}")
                expect(source.ask_raw("close", peer) == "ok", "close")
                expect(source.ask_raw("close", peer) == "CLOSED", "close it twice")
                source.do("destroy")
                source.do("create", "paths", 1)
            grown = source.rss() - rss
            expect(grown < (1 << 20) * SLOWER * SLOWER, f"{grown} bytes more")
            until(lambda: source.threads() <= threads, "threads are gone")
            until(lambda: source.descriptors() <= descriptors, "descriptors are gone")


main()
