# SPDX-License-Identifier: Apache-2.0
"""S30, many keys, one death: only what the dead one held goes, and nobody else is suspected."""
from store import LEASE_S, Store, node
from yuebing import DEADLINE_S, LONG, SLOWER, case, expect, machine_is_busy, main, until

KEYS = (1_000_000 if LONG else 100_000) // SLOWER
PART = KEYS // 10
PROBES = 50 // SLOWER  # Of 3000 keys, before anything happens.
BYTES_PER_KEY = 400  # A sanitizer adds its own.


def rss(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as told:
        return next(int(line.split()[1]) for line in told if line.startswith("VmRSS")) * 1024


@case("of many keys on ten nodes exactly those of the dead one vanish; 64 nodes may come meanwhile")
def only_its_keys_vanish():
    memory = str(KEYS * 4096 * 2)  # A node has a record for each 4 KiB.
    with Store(nodes=0) as store, store.client(no_shm=1) as a, store.client(no_shm=1) as b:
        before = rss(store.directory.pid)
        nine = node(store.directory.address, "--node-count", "9", name="many", memory=memory)
        store.nodes.append(nine)
        nine.begin()
        until(lambda: len(a.nodes()) == 9, "nine nodes are known")
        a.put(f"k:0-{KEYS - PART - 1}", bytes=64, batch=8000, ms=30000).all("OK")
        dying = store.node("dying", memory=str(PART * 4096 * 2))
        store.nodes.append(dying)
        dying.begin()
        until(lambda: len(b.nodes()) == 10, "ten nodes are known")
        b.put(f"d:0-{PART - 1}", bytes=64, batch=8000, preferred="dying", ms=30000).all("OK")
        grown = (rss(store.directory.pid) - before) / KEYS
        print(f"# {grown:.0f} bytes of the directory for each key")
        expect(SLOWER > 1 or grown < BYTES_PER_KEY, f"{grown:.0f} bytes for each key")
        probe = f"k:0-{min(30000, KEYS - PART) - 1}"
        a.loop(0, "exist", probe, batch=3000, threads=1)
        until(lambda: a.loops(0)["calls"] >= PROBES, "it is measured")
        quiet = a.loops(0, reset=1)
        more = node(store.directory.address, "--node-count", "64", name="new", memory="128m")
        store.nodes.append(more)
        more.begin(4 * DEADLINE_S)  # They register one after the other.
        until(lambda: len(b.nodes()) == 74, "64 more are known")
        dying.kill()
        until(lambda: b.exist("d:0-99").counted["NOT_FOUND"] == 100, "its keys vanish",
              LEASE_S + DEADLINE_S)
        until(lambda: len(b.nodes()) == 73, "it is no member any more", LEASE_S + DEADLINE_S)
        found = a.unloop(0)
        expect(set(found["items"]) == {"OK"}, f"{found}")
        print(f"# exist of 3000: {quiet['p99_us']} us when quiet, {found['p99_us']} us meanwhile")
        expect(found["p99_us"] < 5 * max(quiet["p99_us"], 20000) or machine_is_busy(),
               f"{quiet} {found}")
        states = {one["state"] for one in b.nodes()}
        expect(states == {"serving"}, f"{states}")
        expect(nine.metric("yuebing_node_registered_total") == 9, "nobody had to register again")
        b.exist(f"d:0-{PART - 1}", batch=30000).all("NOT_FOUND")
        a.exist(f"k:0-{KEYS - PART - 1}", batch=30000).all("OK")
        a.get(f"k:0-{KEYS - PART - 1}", bytes=64, batch=4000).all("OK")


@case("at the most keys that the directory knows, puts evict or say that there is no space")
def most_keys():
    with Store(nodes=1, directory_words=("--directory-records", "2048")) as store, \
            store.client() as client:
        for part in range(8):
            client.put(f"k{part}:0-999", bytes=64, ms=5000).all("OK", "NO_SPACE", "AGAIN")
        records = until(lambda: store.directory.metric("yuebing_directory_records"), "some")
        expect(records <= 2048, f"{records} records")
        found = sum(client.exist(f"k{part}:0-999").counted["OK"] for part in range(8))
        expect(0 < found <= 2048, f"{found} are there")
        for part in range(8):
            client.get(f"k{part}:0-999", bytes=64).all("OK", "NOT_FOUND")


@case("when a node has no record left for a key, an older one makes room, though there is memory")
def records_make_room():
    with Store(nodes=1, memory="16m") as store, store.client() as client:
        for part in range(10):
            client.put(f"k{part}:0-999", bytes=16, ms=10000).all("OK")
        found = [client.exist(f"k{part}:0-999").counted["OK"] for part in range(10)]
        expect(sum(found) >= 4000 and found[9] == 1000, f"{found} are there")
        expect(store.metric("yuebing_node_evicted_total") > 0, "some went")
        client.get("k9:0-999", bytes=16).all("OK")


main()
