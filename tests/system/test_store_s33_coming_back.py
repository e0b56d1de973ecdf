# SPDX-License-Identifier: Apache-2.0
"""S33, coming back: a directory that stops, or dies, and starts again on its address."""
import contextlib
import os
import socket

from store import LEASE_S, Store, directory
from yuebing import LONG, SLOWER, case, expect, expect_soon, folder, main, split, until, window

KEYS = 2000
BACK_S = 3.0 * SLOWER


def round_trip(clean):
    with folder() as where, contextlib.ExitStack() as stack:
        words = ("--cluster-file", os.path.join(where, "cluster"))
        store = stack.enter_context(Store(nodes=2, directory_words=words))
        clients = [stack.enter_context(store.client()) for _ in range(8)]
        clients[0].put(f"k:0-{KEYS - 1}", bytes=1000).all("OK")
        clients[0].put("gone:0-9", bytes=1000).all("OK")
        clients[0].remove("gone:0-9").all("OK")
        for number in range(5 if LONG else 2):
            address = store.directory.address
            clients[1].loop(0, "get", f"k:0-{KEYS - 1}", batch=50, bytes=1000, ms=20000)
            if clean:
                expect(store.directory.stop() == 0, "it stops cleanly")
            else:
                store.directory.kill()
            store.directory = directory(*words, listen=address).begin()
            # Whatever is asked while it rebuilds: nothing acknowledged is denied.
            for client in clients[2:]:
                found = client.exist("k:0-99,gone:0-9", ms=10000).sound()
                expect(set(found.items[:100]) <= {"OK", "REBUILDING"}, f"{found}")
                expect(set(found.items[100:]) <= {"NOT_FOUND", "REBUILDING"}, f"{found}")
            until(lambda c=clients: c[3].exist(f"k:0-{KEYS - 1}").counted["OK"] == KEYS,
                  "all is known again", BACK_S)
            found = clients[1].unloop(0)
            expect(found["wrong"] == 0 and set(found["items"]) <= {"OK", "REBUILDING"}, f"{found}")
            for client in clients:
                client.get(f"k:{number}-99", bytes=1000).all("OK")
            until(lambda c=clients: c[2].exist("gone:0-9").counted["NOT_FOUND"] == 10,
                  "and no more")
            clients[4].put("k:0-99", bytes=500, version=2).all("EXISTS")
            clients[5].put(f"new{number}:0-99", bytes=500).all("OK")
            clients[6].get(f"new{number}:0-99", bytes=500).all("OK")
            until(lambda c=clients: {one["name"] for one in c[7].nodes()} == {"n0", "n1"},
                  "the nodes are members")


@case("after a clean stop and a start all keys are there again, for clients that did nothing")
def clean_stop():
    round_trip(True)


@case("after kill -9 and a start all keys are there again, too")
def killed():
    round_trip(False)


@case("without a cluster file it is a new cluster: nodes come back to it, and puts work")
def without_a_file():
    with Store(nodes=1) as store, store.client() as a:
        a.put("k:0-99", bytes=1000).all("OK")
        address = store.directory.address
        expect(store.directory.stop() == 0, "it stops cleanly")
        store.directory = directory(listen=address).begin()
        until(lambda: a.put("new:0-9", bytes=1000, ms=2000).sound().counted["OK"]
              + a.exist("new:0-9").counted["OK"] >= 10, "puts work", BACK_S + 2 * LEASE_S)
        a.get("new:0-9", bytes=1000).all("OK")
        found = a.get("k:0-99", bytes=1000).sound()
        expect(set(found.counted) <= {"OK", "NOT_FOUND"} and len(found.counted) == 1, f"{found}")


@case("an address that swallowed connections for a while holds up nobody once it serves again")
def swallowed():
    with folder() as where, contextlib.ExitStack() as stack:
        words = ("--cluster-file", os.path.join(where, "cluster"))
        store = stack.enter_context(Store(nodes=1, directory_words=words))
        clients = [stack.enter_context(store.client()) for _ in range(8)]
        clients[0].put("k:0-99", bytes=1000).all("OK")
        address = store.directory.address
        expect(store.directory.stop() == 0, "it stops cleanly")
        with socket.socket() as hole, contextlib.ExitStack() as full:
            hole.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            hole.bind(split(address))
            hole.listen(0)
            for _ in range(4):  # Its queue is full: who connects now hears nothing.
                one = full.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(split(address))
            for client in clients:
                client.send("exist", keys="k:0-9", ms=2000)
            for client in clients:
                expect_soon(client.receive()["ms"] / 1000, 3.5, "a deadline is one")
            window(2.0)  # Long enough for the kernel to try less and less often.
        store.directory = directory(*words, listen=address).begin()
        until(lambda: all(c.exist("k:0-99", ms=200).counted["OK"] == 100 for c in clients),
              "all are back", BACK_S)
        clients[1].put("new:0-9", bytes=100).all("OK")


@case("what is asked while nobody serves waits for its deadline, and not longer")
def nobody_serves():
    with Store(nodes=1) as store, store.client() as a:
        a.put("k:0-9", bytes=1000).all("OK")
        store.directory.pause()
        found = a.exist("k:0-9", ms=500).sound()
        expect(found.counted["OK"] == 0, f"{found}")
        expect_soon(found["ms"] / 1000, 1.5, f"{found}")
        found = a.put("late:0-9", bytes=1000, ms=500).sound()
        expect(found.counted["OK"] == 0, f"{found}")
        expect_soon(found["ms"] / 1000, 1.5, f"{found}")
        store.directory.go_on()
        until(lambda: a.exist("k:0-9").counted["OK"] == 10, "it goes on")


main()
