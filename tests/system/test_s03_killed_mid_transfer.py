# SPDX-License-Identifier: Apache-2.0
"""S03, killed in the middle: calls end inside their deadline, never OK with wrong bytes."""
import random
import struct

from engines import PATIENCE_MS, Engine
from yuebing import DEADLINE_S, LONG, SLOWER, Wire, case, expect, frame, main, until, window

ROUNDS = 50 if LONG else 4
BYTES = (256 << 20) if LONG else (8 << 20)
THREADS = 8
SEED = random.randrange(1, 1 << 30)
print(f"# seed {SEED}")
dice = random.Random(SEED)


def target(seed, length):
    engine = Engine()
    engine.memory("x", length, seed)
    return engine, engine.register("x")


@case("a peer that is killed costs its calls their deadline at most, and no other peer anything")
def _():
    with Engine() as source:
        other, other_region = target(999, 1 << 20)
        other_peer = source.open(other.address)
        with other:
            for number in range(ROUNDS):
                seed = 1000 + number
                victim, region = target(seed, BYTES)
                peer = source.open(victim.address)
                source.load(peer, THREADS, "read", region, BYTES // THREADS, seed,
                            step=BYTES // THREADS)
                source.load(other_peer, 1, "read", other_region, 1 << 20, 999)
                until(lambda p=peer: source.loads(p).ok > 0, "something is read")
                # Nobody may stand still. That is judged by what others get meanwhile, not by time:
                # of that a loaded machine gives as little as it likes. One of nine threads is due
                # a ninth.
                before = source.loads(other_peer).ok
                enough = source.loads(peer).ok + 40 * THREADS
                until(lambda p=peer, b=before, n=enough:
                      source.loads(other_peer).ok > b or source.loads(p).ok >= n,
                      "more is read", 2 * DEADLINE_S)
                middle = source.loads(other_peer).ok
                expect(middle > before, f"the other peer stood still beside {40 * THREADS} reads")
                window(1.0 if LONG else dice.uniform(0, 0.05))
                beside, middle = middle, source.loads(other_peer).ok
                victim.kill()
                if LONG and SLOWER == 1:
                    window(1.0)
                    after = source.loads(other_peer).ok
                    expect(after - middle >= 0.8 * (middle - beside),
                           f"the other peer slowed down: {middle - beside} {after - middle}")
                # Calls to the dead end with their deadline: long enough for others to go on,
                # unless the machine did not even let the engine's process answer meanwhile.
                answers = 0
                while source.loads(peer).failed == 0:
                    expect(answers < 3000, "no call to the dead ends")
                    answers += 1
                    window(0.01)
                expect(answers < 50 or source.loads(other_peer).ok > middle,
                       f"the other peer stood still until calls to the dead had ended, while "
                       f"{answers} questions were answered")
                found = source.unload()
                expect(found.wrong == 0, f"{found.wrong} reads were OK with wrong bytes")
                expect(found.late == 0, f"{found.late} calls outlived their deadline")
                expect(found.failed > 0, "nobody noticed")
                source.do("close", peer)
            source.do("ask", other_peer, PATIENCE_MS)  # The other is there.


@case("writes of a writer that is killed leave nothing in use at the target")
def _():
    length = 8 << 20
    with Engine() as sink:
        sink.memory("x", length)
        region = sink.register("x")
        for number in range(ROUNDS):
            writer = Engine()
            peer = writer.open(sink.address)
            writer.load(peer, 4, "write", region, length // 4, number, step=length // 4)
            until(lambda w=writer: w.loads().ok > 0, "something is written")
            window(dice.uniform(0, 0.05))
            half = Wire(sink.address)  # A writer that dies in the middle of a frame, for sure.
            half.handshake(lane=1)
            half.send(frame(16, struct.pack("<I4xQQQ", 1, region, 0, 1 << 20), 1,
                            data_bytes=1 << 20) + bytes(1 << 19))
            identity = None
            if number % 2 == 0:
                back = sink.open(writer.address)
                identity = sink.identity(back)
                sink.do("close", back)
            writer.kill()
            half.close()
            if identity:
                sink.do("fence", identity, PATIENCE_MS)
            sink.do("unregister", "x", PATIENCE_MS)
            sink.do("set", "x", 0x77, 0, length)
            region = sink.register("x")
            window(0.02)
            sink.do("same", "x", 0x77, 0, length)


main()
