# SPDX-License-Identifier: Apache-2.0
"""S08: a read that runs out of time, is cancelled or given up; its memory is the caller's again."""
from engines import ONLY_TCP, PATIENCE_MS, Engine
from yuebing import LONG, SLOWER, case, expect, main, queued, split, until, window

BYTES = (256 << 20) if LONG else (32 << 20)
ROUNDS = 10_000 if LONG else 300


@case("a read from a target that is stopped ends at its deadline and touches nothing later")
def _():
    with Engine() as target, Engine() as source:
        target.memory("x", BYTES, 1)
        source.memory("y", BYTES)
        source.register("y")
        region = target.register("x")
        peer = source.open(target.address)
        expect(source.run(peer, "read", "y", BYTES, region).status == "OK", "warm")
        target.stop()
        batch = source.submit(peer, "read", "y", BYTES, region, ms=500)
        busy = source.ask_raw("unregister", "y", 0)
        expect(busy == "BUSY" or not ONLY_TCP, "unregistered under a transfer")
        source.do("wait", batch, PATIENCE_MS)
        end = source.poll(batch)
        if end.status != "OK" or ONLY_TCP:  # Shared memory is read without its owner's help.
            expect(end.status == "TIMED_OUT" and not end.in_doubt, f"{end}")
        if busy == "BUSY":
            source.do("unregister", "y", 0)
        source.do("set", "y", 0xab, 0, BYTES)
        target.go_on()
        source.do("drain", peer, PATIENCE_MS)
        window(2.0 if LONG else 0.3)
        source.do("same", "y", 0xab, 0, BYTES)
        source.do("release", batch)
        expect(source.run(peer, "read", "y", BYTES, region).status == "OK", "afterwards")
        source.do("check", "y", 1, 0, BYTES)


@case("a write to a target that is stopped is in doubt until it was drained, and then quiet")
def _():
    with Engine() as target, Engine() as source:
        target.memory("x", BYTES)
        source.memory("y", BYTES, 2)
        region = target.register("x")
        peer = source.open(target.address)
        expect(source.run(peer, "write", "y", BYTES, region).status == "OK", "warm")
        for cancels in (False, True):
            target.stop()
            batch = source.submit(peer, "write", "y", BYTES, region, ms=60000 if cancels else 1000)
            if ONLY_TCP:
                until(lambda: queued(split(target.address)[1]) > 100_000, "it is under way")
            if cancels:
                source.do("cancel", batch)
            source.do("wait", batch, PATIENCE_MS)
            end = source.poll(batch)
            expect(end.status == ("CANCELLED" if cancels else "TIMED_OUT"), f"{end}")
            expect(end.in_doubt or not ONLY_TCP, f"{end}")
            source.do("set", "y", 0xcd, 0, BYTES)  # Local memory is quiet at once.
            expect(source.ask_raw("drain", peer, 100) == "TIMED_OUT", "drained a stopped target")
            expect(source.poll(batch).in_doubt == end.in_doubt, "doubt was lost")
            target.go_on()
            source.do("drain", peer, PATIENCE_MS)
            expect(not source.poll(batch).in_doubt, "drained, and still in doubt")
            target.do("set", "x", 0x11, 0, BYTES)
            window(2.0 if LONG else 0.2)
            target.do("same", "x", 0x11, 0, BYTES)
            source.do("release", batch)
            source.do("fill", "y", 2, 0, BYTES)


@case("thousands of timeouts, cancels and reuses leave no handle and no memory behind")
def _():
    length = 1 << 20
    with Engine() as target, Engine() as source:
        target.memory("x", length, 3)
        source.memory("y", length)
        region = target.register("x")
        peer = source.open(target.address)

        def rounds(count):
            for number in range(count):
                target.stop()
                batch = source.submit(peer, "read" if number % 2 else "write", "y", length, region,
                                      items=4, ms=2 if number % 3 else 5000)
                if number % 3 == 0:
                    source.do("cancel", batch)
                if number % 2 == 0:  # The others end while it is stopped.
                    target.go_on()
                source.end(batch)
                target.go_on()

        rounds(50)
        source.do("drain", peer, PATIENCE_MS)
        descriptors, memory = source.descriptors(), source.rss()
        theirs = target.descriptors(), target.rss()
        rounds(ROUNDS)
        source.do("drain", peer, PATIENCE_MS)
        until(lambda: source.descriptors() <= descriptors + 4, "descriptors are given back")
        grown = source.rss() - memory
        expect(grown < (8 << 20) * SLOWER, f"{grown} bytes more")
        until(lambda: target.descriptors() <= theirs[0] + 4, "the target gives descriptors back")
        grown = target.rss() - theirs[1]
        expect(grown < (8 << 20) * SLOWER, f"{grown} bytes more at the target")
        for name in ("tcp",) if ONLY_TCP else ("tcp", "shm"):
            expect(source.path(peer, name)["flying"] == 0, f"something flies over {name}")
        target.do("fill", "x", 4, 0, length)
        expect(source.run(peer, "read", "y", length, region).status == "OK", "afterwards")
        source.do("check", "y", 4, 0, length)
        target.do("unregister", "x", PATIENCE_MS)


main()
