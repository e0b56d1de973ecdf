# SPDX-License-Identifier: Apache-2.0
"""S28, full, and nothing may go: a clear answer at once, and no work in vain."""
import time

from store import MIB, Store
from yuebing import case, cpu_seconds, expect, expect_soon, main, until

MEMORY = "32m"


def fill(client):
    """Hard-pinned blocks until no more fit; returns how many."""
    number = 0
    while client.put(f"pin:{number}", bytes=MIB // 4, hard=1, ms=2000).items == ["OK"]:
        number += 1
    return number


@case("10000 puts into a pool of pinned blocks are refused quickly, quietly and cheaply")
def refused_at_once():
    with Store(memory=MEMORY) as store, store.client(no_shm=1) as client:
        pinned = fill(client)
        expect(pinned >= 96, f"only {pinned} fit")
        node, where = store.nodes[0], store.directory
        lines = len(node.log) + len(where.log)
        cpu, begun = cpu_seconds(where.pid), time.monotonic()
        found = client.put("more:0-9999", bytes=MIB // 4, batch=100, ms=10000)
        seconds = time.monotonic() - begun
        found.all("NO_SPACE")
        expect_soon(found["longest_ms"] / 1000, 0.2, "the slowest batch of 100")
        one = client.put("more:10000", bytes=MIB // 4).each("NO_SPACE")
        expect_soon(one["ms"] / 1000, 0.05, "one")
        expect(cpu_seconds(where.pid) - cpu < max(seconds, 0.2), "the directory is not busy")
        more = len(node.log) + len(where.log) - lines
        expect(more < 5 * (seconds + 1) * 3, f"{more} lines in {seconds:.1f} s")
        vain = node.metric("yuebing_node_evict_vain_total")
        expect(0 < vain <= 20002, f"{vain} evictions in vain")
        refused = node.metric("yuebing_node_puts_total", status="NO_SPACE")
        expect(refused >= 10001, f"{refused} refusals are counted")
        client.get(f"pin:0-{pinned - 1}", bytes=MIB // 4, batch=16).all("OK")
        print(f"# {10000 / seconds:.0f} refusals a second")


@case("when one block is released, the next put of its size succeeds")
def room_is_used():
    with Store(memory=MEMORY) as store, store.client() as client:
        fill(client)
        client.put("more:0", bytes=MIB // 4).each("NO_SPACE")
        client.remove("pin:5", force=1).each("OK")
        # Pinned, too: above the mark it would make room again at once.
        until(lambda: client.put("more:0", bytes=MIB // 4, hard=1).items == ["OK"], "it fits now")
        client.get("more:0", bytes=MIB // 4).each("OK")


@case("one value that is larger than the memory is refused, and leaves nothing behind")
def too_large():
    with Store(nodes=2, memory="48m") as store, store.client() as client:
        client.put("large:0", bytes=128 * MIB).each("TOO_LARGE")
        client.put("large:0", bytes=80 * MIB).each("NO_SPACE")  # Less, and its parts do not fit.
        client.get("large:0", bytes=80 * MIB).each("NOT_FOUND")
        until(lambda: sum(node.metric("yuebing_node_used_bytes") for node in store.nodes) < MIB,
              "nothing is left")
        client.put("large:0", bytes=70 * MIB).each("OK")
        client.get("large:0", bytes=70 * MIB).each("OK")


@case("three replicas on two nodes: it is put twice, and told so; a death leaves it readable")
def fewer_replicas_are_told():
    with Store(nodes=2) as store, store.client() as client:
        found = client.put("r:0-9", bytes=10000, replicas=3).all("OK")
        expect(set(found.replicas) == {2}, f"{found.replicas}")
        expect(set(client.exist("r:0-9").all("OK").replicas) == {2}, "exist says the same")
        store.nodes[0].kill()
        client.get("r:0-9", bytes=10000, ms=5000).all("OK")


main()
