# SPDX-License-Identifier: Apache-2.0
"""S20, a writer that dies in the middle of a put: nothing is seen of it, its space comes back."""
import random
import time

from relay import Relay
from store import MIB, Client, Store
from yuebing import LONG, SLOWER, case, expect, expect_soon, main, queued, until, window

ROUNDS = 200 if LONG else 12
BYTES = 8 * MIB
HEAL_S = 1.0 + 1.0  # The time of an unfinished write, and a tick.


@case("after kill -9 at any point another client puts the key soon, and the space comes back")
def killed_writer_leaves_nothing():
    rng = random.Random(20)
    with Store(nodes=2, memory="192m") as store, store.client() as other:
        for number in range(ROUNDS):
            key = f"k:{number}"
            with store.client(no_shm=1) as writer:
                writer.send("put", keys=key, bytes=BYTES, version=1)
                window(rng.random() * 0.03 * SLOWER)  # The point at which it dies.
                seen = other.get(key, bytes=BYTES, ms=1000).sound()
                writer.kill()
            begun = time.monotonic()
            found = until(lambda key=key: (lambda answer: answer if answer.items[0] in (
                "OK", "EXISTS") else None)(other.put(key, bytes=BYTES, version=2,
                                                     ms=2000).sound()),
                f"round {number}: the key can be put")
            took = time.monotonic() - begun
            expect_soon(took, HEAL_S, f"round {number}: until the key could be put")
            expect(seen.items != ["OK"] or found.items == ["EXISTS"], "it was not seen for nothing")
            after = other.get(key, bytes=BYTES).each("OK")
            expect(after.versions == [1 if found.items == ["EXISTS"] else 2], f"{after}")
            other.remove(key).all("OK")
        until(lambda: sum(store.used().values()) == 0, f"all space is back: {store.used()}")


@case("one that dies in the middle of its bytes is counted, and leaves nothing")
def dead_in_the_middle():
    with Store(nodes=1, memory="192m", lease_ms=60000) as store, store.client() as other:
        node = store.nodes[0]
        for number in range(3):
            with store.client(no_shm=1) as writer:
                writer.put("warm:0", bytes=BYTES, replace=1).all("OK")
                node.pause()
                writer.send("put", keys=f"k:{number}", bytes=8 * BYTES, version=1, ms=60000)
                until(lambda: queued(node.port) > 100_000, "it has begun")
                writer.kill()
            node.go_on()
            until(lambda n=number: node.metric("yuebing_node_puts_total", status="PEER_LOST")
                  == n + 1, "it is counted")
            other.get(f"k:{number}", bytes=8 * BYTES).each("NOT_FOUND")
            until(lambda n=number: other.put(f"k:{n}", bytes=1000, version=2).items == ["OK"],
                  "the key can be put")
            other.get(f"k:{number}", bytes=1000, version=2).each("OK")
        other.remove("warm:0,k:0-2").all("OK")
        until(lambda: sum(store.used().values()) == 0, f"all space is back: {store.used()}")


@case("a writer that is cut off from the directory after its bytes were sent is nobody's problem")
def cut_off_writer():
    with Store(nodes=1) as store, store.client() as other, \
            Relay(store.directory.address) as relay, Client(relay.address) as writer:
        for number in range(10):
            relay.hold()
            writer.send("put", keys=f"k:{number}", bytes=MIB, ms=300)
            found = other.put(f"k:{number}", bytes=MIB, version=2, ms=3000)
            found.all("OK", "EXISTS")
            relay.release()
            answer = writer.receive().sound()
            expect(set(answer.items) <= {"OK", "EXISTS", "TIMED_OUT", "IN_DOUBT", "IN_PROGRESS",
                                         "AGAIN", "PEER_LOST"}, f"{answer}")
            after = other.get(f"k:{number}", bytes=MIB).each("OK")
            expect(after.versions == [2 if found.items == ["OK"] else 1], f"{after} {answer}")
            relay.cut()
        until(lambda: store.used()["in_flight"] == store.used()["ungranted"] == 0,
              f"{store.used()}")


main()
