# SPDX-License-Identifier: Apache-2.0
"""S18, many writers of the same keys: one wins each, and nobody ever sees a mixture."""
import collections
import contextlib
import random

from store import MIB, Store
from yuebing import LONG, SLOWER, case, expect, main, until, window

WRITERS = 16
KEYS = 1000
BYTES = MIB if LONG else 16 << 10
BATCH = 50


@contextlib.contextmanager
def clients(store, count):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(store.client(no_shm=1)) for _ in range(count)]


def received(store):
    return sum(one.metric("yuebing_net_received_bytes_total") for one in store.nodes)


@case("16 processes put the same keys: one OK each, readers see the winner whole or nothing, and "
      "hardly a byte moves twice")
def one_wins_each():
    memory = KEYS * BYTES * 2 + 64 * MIB
    with Store(nodes=2, memory=str(memory)) as store, clients(store, WRITERS) as writers, \
            clients(store, 4) as readers:
        for reader in readers:
            # They rest, since their questions are bytes that the nodes receive, too.
            reader.loop(0, "get", f"k:0-{KEYS - 1}", batch=10, bytes=BYTES, rest_us=5000)
        for number, writer in enumerate(writers):
            writer.send("put", keys=f"k:0-{KEYS - 1}", bytes=BYTES, version=number + 1,
                        batch=BATCH, ms=60000)
        answers = [writer.receive(240).sound() for writer in writers]
        for reader in readers:
            found = reader.unloop(0)
            expect(found["wrong"] == 0, f"a mixture: {found}")
            expect(set(found["items"]) <= {"OK", "NOT_FOUND", "IN_PROGRESS", "NOT_READY"},
                   f"{found}")
        statuses = [answer.items for answer in answers]
        for number, row in enumerate(zip(*statuses)):
            found = collections.Counter(row)
            expect(found["OK"] == 1 and found["OK"] + found["EXISTS"] + found["IN_PROGRESS"]
                   == WRITERS, f"key {number}: {found}")
        winners = [row.index("OK") + 1 for row in zip(*statuses)]
        found = readers[0].get(f"k:0-{KEYS - 1}", bytes=BYTES, batch=BATCH).all("OK")
        expect(found.versions == winners, "what is there is the winner's")
        until(lambda: store.used()["in_flight"] == store.used()["ungranted"] == 0,
              f"{store.used()}")
        live = store.used()["live"]
        expect(KEYS * BYTES <= live < KEYS * BYTES * 1.1, f"{live} bytes are used")
        moved = received(store) / (KEYS * BYTES)
        blocks = store.metric("yuebing_node_puts_total")
        print(f"# {moved:.3f} times the data was moved to the nodes, {blocks:.0f} blocks")
        most = 1.1 * SLOWER  # Who waits for a writer that is slow sends in the end.
        expect(moved <= most and blocks <= most * KEYS, f"{moved:.3f} times the data was moved")


@case("with replace, readers see an old or a new whole value, and versions never go back")
def replace_never_mixes():
    with Store(nodes=2) as store, clients(store, 4) as writers, clients(store, 2) as readers:
        writers[0].put("k:0-9", bytes=100_000, replace=1, version=1).all("OK")
        for reader in readers:
            reader.loop(0, "get", "k:0-9", batch=4, bytes=100_000)
        last = 0
        for number in range(20 if not LONG else 200):
            for who, writer in enumerate(writers):
                writer.send("put", keys="k:0-9", bytes=100_000, replace=1,
                            version=2 + number * 4 + who)
            for writer in writers:
                writer.receive().all("OK")
            found = readers[0].ask("get", keys="k:0-9", bytes=100_000).all("OK")
            expect(min(found.versions) > last, f"{found.versions} after {last}")
            last = 1 + number * 4
        for reader in readers:
            found = reader.unloop(0)
            expect(found["wrong"] == 0 and set(found["items"]) <= {"OK"}, f"{found}")


@case("an update that fails, for want of room or with its writer, leaves a whole value, old or new")
def failed_update_leaves_a_whole_value():
    with Store(memory="32m") as store, store.client() as a, store.client(no_shm=1) as b:
        a.put("k:0-3", bytes=MIB, hard=1, replace=1, version=1).all("OK")
        number = 0
        while a.put(f"pin:{number}", bytes=MIB, hard=1).items == ["OK"]:
            number += 1
        a.put("k:0-3", bytes=MIB, replace=1, version=2).all("NO_SPACE")
        expect(b.get("k:0-3", bytes=MIB).all("OK").versions == [1] * 4, "the old values stay")
    rng = random.Random(18)
    with Store(memory="256m") as store, store.client() as a:
        for number in range(20 if LONG else 5):
            key = f"k:{number}"
            a.put(key, bytes=8 * MIB, replace=1, version=1).each("OK")
            with store.client(no_shm=1) as writer:
                writer.send("put", keys=key, bytes=8 * MIB, replace=1, version=2)
                window(rng.random() * 0.02 * SLOWER)
                writer.kill()
            until(lambda: store.used()["in_flight"] == 0, "the space of the dead one is back")
            found = a.get(key, bytes=8 * MIB).each("OK")
            expect(found.versions[0] in (1, 2), f"{found}")
            a.put(key, bytes=1000, replace=1, version=3).each("OK")
            expect(a.get(key, room=8 * MIB).each("OK").versions == [3], "the next one")
            a.remove(key).each("OK")
        until(lambda: sum(store.used().values()) == 0, f"nothing is left: {store.used()}")


main()
