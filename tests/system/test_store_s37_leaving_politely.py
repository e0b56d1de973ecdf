# SPDX-License-Identifier: Apache-2.0
"""S37 for the store: a node that stops under load, one that is drained, clients come and go."""
import os
import signal
import time

from store import MIB, Store
from yuebing import LONG, SLOWER, case, expect, expect_soon, main, until

GRACE_S = 4.0  # The time to drain is 1.5 s of it.
ANSWERS = {"OK", "PEER_LOST", "NOT_FOUND", "FENCED", "REFUSED", "UNREACHABLE", "STALE"}


@case("SIGTERM to any thread of a node under load: it ends with 0, its users see OK or a loss")
def sigterm_under_load():
    for number in range(6 if LONG else 2):
        with Store(nodes=2, memory="256m") as store, store.client(no_shm=1) as reader, \
                store.client(no_shm=1) as writer:
            writer.put("k:0-63", bytes=MIB, preferred="n0", batch=8).all("OK")
            reader.loop(0, "get", "k:0-63", batch=2, bytes=MIB, threads=8, ms=3000)
            writer.loop(0, "put", "w", fresh=1, batch=2, bytes=65536, threads=4, ms=3000)
            until(lambda r=reader, w=writer: r.loops(0)["calls"] > 20 and w.loops(0)["calls"] > 20,
                  "it is used")
            node = store.nodes[0]
            tasks = sorted(map(int, os.listdir(f"/proc/{node.pid}/task")))
            begun = time.monotonic()
            # To a thread of it: a signal of the process may be taken by any.
            os.kill(tasks[number % len(tasks)], signal.SIGTERM)
            code = node.wait()
            took = time.monotonic() - begun
            node.killed = True
            expect(code == 0, f"it ended with {code}")
            expect_soon(took, GRACE_S, "it took")
            until(lambda w=writer: w.loops(0, reset=1)["items"].keys() <= {"OK"}
                  and w.loops(0)["calls"] > 0, "puts are well again")
            found = reader.unloop(0)
            expect(found["wrong"] == 0 and set(found["items"]) <= ANSWERS | {"TIMED_OUT"},
                   f"{found}")
            found = writer.unloop(0)
            expect(set(found["items"]) <= ANSWERS | {"IN_DOUBT"}, f"{found}")


@case("a second SIGTERM ends it at once")
def second_sigterm():
    with Store(nodes=1, words=("--net-drain-ms", "30000")) as store, \
            store.client(no_shm=1) as client:
        node = store.nodes[0]
        client.loop(0, "put", "w", fresh=1, batch=1, bytes=MIB, threads=4, ms=1000)
        until(lambda: client.loops(0)["calls"] > 4, "it is used")
        node.process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        until(lambda: node.process.poll() is not None or node.process.send_signal(signal.SIGTERM),
              "it ends")
        took = time.monotonic() - begun
        node.killed = True
        node.wait()
        expect_soon(took, 1.0, "it took")
        client.unloop(0)


@case("a node that is drained loses nothing, takes nothing new, and can be stopped")
def drained_loses_nothing():
    with Store(nodes=3, memory="128m") as store, store.client(no_shm=1) as a, \
            store.client(no_shm=1) as b:
        a.put("k:0-199", bytes=20_000, preferred="n0").all("OK")
        b.loop(0, "get", "k:0-199", batch=10, bytes=20_000, threads=2, ms=5000)
        expect(a.ask("drain", name="n0").status == "OK", "the order is taken")
        until(lambda: any(one["state"] == "draining" for one in a.nodes()), "it is known")
        until(lambda: store.nodes[0].metric("yuebing_node_blocks") == 0, "all has moved",
              15 * SLOWER)
        a.put("new:0-99", bytes=1000).all("OK")
        expect(store.nodes[0].metric("yuebing_node_blocks") == 0, "nothing new comes")
        expect(store.nodes[0].stop() == 0, "it stops")
        store.nodes[0].killed = True
        a.get("k:0-199", bytes=20_000).all("OK")
        found = b.unloop(0)
        expect(found["wrong"] == 0 and set(found["items"]) <= {"OK"}, f"{found}")


@case("clients that come and go leave no thread, no descriptor and no memory")
def clients_leave_nothing():
    with Store(nodes=1) as store, store.client(joined=False) as client:
        rounds = 1000 if LONG else 60

        def status():
            with open(f"/proc/{client.pid}/statm", encoding="ascii") as told:
                rss = int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            return rss, len(os.listdir(f"/proc/{client.pid}/task")), \
                len(os.listdir(f"/proc/{client.pid}/fd"))
        words = {"directory": store.directory.address}
        expect(client.ask("cycle", rounds=rounds // 3, **words).status == "OK", "first")
        rss, threads, descriptors = status()
        expect(client.ask("cycle", rounds=rounds, **words).status == "OK", "then")
        until(lambda: status()[1:] == (threads, descriptors), f"{status()}")
        grown = status()[0] - rss
        expect(grown < 2 * MIB * SLOWER * SLOWER, f"{grown} bytes more")
        until(lambda: store.directory.open_count() <= 4, "the directory has forgotten them")


@case("a forked child may not use its parent's client, and takes nothing from it")
def forked_child():
    with Store(nodes=1) as store, store.client() as client:
        client.put("k:0-9", bytes=1000).all("OK")
        expect(client.ask("fork", keys="k:0-9").status == "INVALID", "the child is told")
        client.get("k:0-9", bytes=1000).all("OK")


main()
