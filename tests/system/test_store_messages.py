# SPDX-License-Identifier: Apache-2.0
"""Messages for each block that goes: bounded by its recent readers, none to everyone else."""
from store import Store
from yuebing import case, expect, main, until, window

BLOCKS = 50
READERS = 4  # Of a block, that are remembered: docs/store.md.


def received(client, clients):
    return client.counters(c=0, clients=clients)["invalidated"]


@case("with 8, 32 and 128 clients a dropped block is told to those that read it, to no others")
def told_to_recent_readers_only():
    with Store(nodes=1, memory="128m") as store, store.client() as writer, \
            store.client(joined=False) as crowd:
        node, keys = store.nodes[0], f"k:0-{BLOCKS - 1}"
        there = 0
        for clients in (8, 32, 128):
            found = crowd.open(c=there, clients=clients - there, no_shm=1)
            expect(found.status == "OK", f"they join: {found}")
            there = clients
            before = [crowd.counters(c=one)["invalidated"] for one in range(clients)]
            writer.put(keys, bytes=1000).all("OK")
            for reader in (0, 0, 1, 1):  # Two of them read all.
                crowd.get(keys, c=reader, bytes=1000).all("OK")
            window(0.3)
            told = node.metric("yuebing_node_told_total")
            sent = node.metric("yuebing_net_frames_sent_total")
            writer.remove(keys).all("OK")

            def heard():
                return [crowd.counters(c=one)["invalidated"] - then
                        for one, then in enumerate(before)]
            until(lambda: sum(heard()[:2]) >= 2 * BLOCKS * 9 // 10, "the readers hear of it")
            window(0.3)
            told = node.metric("yuebing_node_told_total") - told
            sent = node.metric("yuebing_net_frames_sent_total") - sent
            print(f"# {clients} clients: {told:.0f} told, {sent:.0f} frames, {sum(heard())} heard")
            expect(told <= 2 * BLOCKS <= READERS * BLOCKS, f"{told} told, though two read them")
            expect(sum(heard()[2:]) == 0, f"others were told: {heard()}")
            expect(sent <= 2 * BLOCKS + 20, f"{sent} frames for {BLOCKS} blocks")
            for reader in range(2):
                crowd.get(keys, c=reader, bytes=1000).all("NOT_FOUND")


main()
