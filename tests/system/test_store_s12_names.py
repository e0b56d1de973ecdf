# SPDX-License-Identifier: Apache-2.0
"""S12, names after a crash: a node with a fixed name and port that is killed and started again."""
import time

from store import LEASE_S, Store
from yuebing import LONG, case, expect, expect_soon, main, until

ROUNDS = 50 if LONG else 6


def named(client, name):
    return [one for one in client.nodes() if one["name"] == name]


@case("each start is known within two seconds, and the old life is nobody's any more")
def old_life_is_gone():
    with Store(nodes=1, lease_ms=500) as store, store.client() as client:
        again = store.node("a").begin()
        address = again.address
        lives = set()
        for number in range(ROUNDS):
            until(lambda: any(one["address"] == address and one["incarnation"] not in lives
                              for one in named(client, "a")), "it is known")
            lives |= {one["incarnation"] for one in named(client, "a")}
            client.put(f"k{number}:0-19", bytes=1000, preferred="a").all("OK")
            again.kill()
            begun = time.monotonic()
            again = store.node("a", listen=address).begin()
            until(lambda: any(one["incarnation"] not in lives for one in named(client, "a")),
                  "it is known again")
            took = time.monotonic() - begun
            expect_soon(took, 2.0, f"round {number}")
            expect(again.address == address, f"round {number}: {again.address}")
            client.get(f"k{number}:0-19", bytes=1000, ms=2000).all(
                "NOT_FOUND", "STALE", "PEER_LOST")
        until(lambda: len(named(client, "a")) == 1, "one is left", 10 * LEASE_S)
        expect(len(client.nodes()) == 2, f"{client.nodes()}")
        expect(store.directory.metric("yuebing_directory_members") == 2, "the directory agrees")
        client.put("again:0-19", bytes=1000, preferred="a").all("OK")
        client.get("again:0-19", bytes=1000).all("OK")
        with again:
            pass


main()
