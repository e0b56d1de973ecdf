# SPDX-License-Identifier: Apache-2.0
"""Blocks below memory: they are there after whatever ended the process, and what was removed or
replaced is not (RULES A14, A15)."""
import os
import random
import re
import shutil
import time

from store import LEASE_MS, MIB, Client, Role
from yuebing import LONG, SLOWER, case, expect, folder, main, until

ALONE = 395  # Blocks of 40000 bytes: above the low mark, with room for some more of them.
ROUNDS = 100 if LONG else 5
SIZES = [0, 1, 8, 4095, 4096, 4097, 65535, 65536, 65537, MIB - 1, MIB, MIB + 1, 4 * MIB - 1,
         4 * MIB + 1, 16 * MIB - 1, 16 * MIB + 1] + ([100 * MIB + 1] if LONG else [])


def serve(*words, memory="16m"):
    return Role("--memory", memory, "--directory-lease-ms", str(LEASE_MS), *words,
                command="serve").begin()


def disk(where, *words, **more):
    return serve("--data-dir", os.path.join(where, "data"), "--node-ssd-bytes", "256m", *words,
                 **more)


def stored(role, count):
    """Wait until so many blocks have gone down since it started."""
    until(lambda: role.metric("yuebing_node_stored_total") >= count, f"{count} blocks are below")


def known(client, keys, count):
    until(lambda: client.exist(keys, ms=10000).counted["OK"] == count, f"{keys} are known")


def gone(client, keys, count):
    """Nobody has them; that is said when all nodes have named what they have."""
    until(lambda: client.exist(keys, ms=10000).all("NOT_FOUND", "REBUILDING").counted[
        "NOT_FOUND"] == count, f"{keys} are gone")


@case("blocks are there after a clean stop, and after kill -9")
def kept():
    with folder() as where:
        one = disk(where)
        with Client(one.address) as a:
            a.put("k:0-99", bytes=5000).all("OK")
            stored(one, 100)
        expect(one.stop() == 0, "it stops")
        two = disk(where)
        with Client(two.address) as a:
            known(a, "k:0-99", 100)
            a.get("k:0-99", bytes=5000).all("OK")
            a.put("m:0-99", bytes=5000).all("OK")
            stored(two, 100)
            a.remove("k:0-49").all("OK")
        two.kill()
        with disk(where) as three, Client(three.address) as a:
            known(a, "k:50-99,m:0-99", 150)
            a.get("k:50-99,m:0-99", bytes=5000).all("OK")
            gone(a, "k:0-49", 50)
            a.put("k:0-49", bytes=4000, version=2).all("OK")
            a.get("k:0-49", bytes=4000, version=2).all("OK")


@case("a clean stop brings down what lay in memory alone, and says what it could not")
def settled():
    with folder() as where:
        words = ("--node-write-policy", "back", "--net-drain-ms", str(20000 * SLOWER))
        one = disk(where, *words)
        with Client(one.address) as a:
            a.put("k:0-299", bytes=20000).all("OK")
            expect(one.metric("yuebing_node_stored_total") == 0, "nothing is below yet")
        expect(one.stop() == 0, "it stops")
        expect(not any("nowhere below" in line for line in one.log), f"{one.log[-5:]}")
        with disk(where, *words) as two, Client(two.address) as a:
            known(a, "k:0-299", 300)
            a.get("k:0-299", bytes=20000).all("OK")
        # An object store takes no versioned blocks.
        two = serve("--object-store", "file:" + os.path.join(where, "store"), *words)
        with Client(two.address) as a:
            a.put("k:0-9", bytes=1000).all("OK")
            a.put("v:0-6", bytes=1000, replace=1).all("OK")
        expect(two.stop() == 0, "it stops all the same")
        expect(any("nowhere below memory, blocks 7" in line for line in two.log),
               f"{two.log[-5:]}")


@case("an object store alone gives them back, too")
def object_store():
    with folder() as where:
        words = ("--object-store", "file:" + os.path.join(where, "store"), "--cluster-file",
                 os.path.join(where, "cluster"), "--name", "n")
        one = serve(*words)
        with Client(one.address) as a:
            a.put("k:0-99", bytes=5000).all("OK")
            stored(one, 100)
            a.remove("k:0-9").all("OK")
        one.kill()
        with serve(*words) as two, Client(two.address) as a:
            known(a, "k:10-99", 90)
            a.get("k:10-99", bytes=5000).all("OK")
            gone(a, "k:0-9", 10)
            reads = two.metric("yuebing_object_first_byte_seconds_count")
            expect(0 < reads <= two.metric("yuebing_object_requests_total", verb="get"),
                   f"{reads} reads have told when their first byte came")


@case("another cluster is refused the object store, says whose it is, and leaves it alone")
def others_store():
    with folder() as where:
        store = ("--object-store", "file:" + os.path.join(where, "store"))
        own = (*store, "--cluster-file", os.path.join(where, "cluster"), "--name", "n")
        other = ("--cluster-file", os.path.join(where, "other"))
        one = serve(*own)
        with Client(one.address) as a:
            a.put("k:0-99", bytes=5000).all("OK")
            stored(one, 100)
        one.kill()
        expect(serve(*other).stop() == 0, "it begins a cluster of its own")
        with serve(*other, *store) as two, Client(two.address) as a:
            until(lambda: any("belongs to cluster" in line for line in two.log), "it is refused")
            gone(a, "k:0-99", 100)
            a.put("own:0-0", bytes=5000).all("OK")
            a.get("own:0-0", bytes=5000).all("OK")
            expect(a.ask("remove_all", force=1).status == "OK", "all goes")
            expect(two.metric("yuebing_node_tier_works", tier="object") == 0, "it has no store")
        with serve(*own) as two, Client(two.address) as a:
            known(a, "k:0-99", 100)
            a.get("k:0-99", bytes=5000).all("OK")


@case("who has lost all but the object store finds what is there, and nothing that was ended")
def all_lost():
    with folder() as where:
        store = ("--object-store", "file:" + os.path.join(where, "store"))
        for layout in ("block", "packed"):
            words = (*store, "--node-object-layout", layout)
            one = disk(where, *words)
            with Client(one.address) as a:
                a.put("f:0-9", bytes=5000).all("OK")
                stored(one, 10)
                expect(a.ask("remove_all", force=1).status == "OK", "all goes")
                a.put("k:0-99", bytes=5000).all("OK")
                stored(one, 110)
                a.remove("k:0-9").all("OK")
            one.kill()
            shutil.rmtree(os.path.join(where, "data"))  # Names, logs, and the cluster file.
            for again in range(2):  # With a folder, and without.
                two = disk(where, *words) if again == 0 else serve(*words)
                with Client(two.address) as a:
                    expect(any("goes on as the cluster" in line for line in two.log), "it says so")
                    known(a, "k:10-99", 90)
                    a.get("k:10-99", bytes=5000).all("OK")
                    gone(a, "k:0-9,f:0-9", 20)
                    a.put(f"{layout}{again}:0-9", bytes=3000).all("OK")
                    a.get(f"{layout}{again}:0-9", bytes=3000).all("OK")
                    stored(two, 10)
                two.kill()
                if again == 0:
                    shutil.rmtree(os.path.join(where, "data"))
            with serve(*words) as three, Client(three.address) as a:
                known(a, f"{layout}0:0-9,{layout}1:0-9", 20)
                expect(a.ask("remove_all", force=1).status == "OK", "all goes")
                gone(a, f"k:0-99,{layout}0:0-9,{layout}1:0-9", 120)
            with serve(*words) as four, Client(four.address) as a:
                gone(a, f"k:0-99,{layout}0:0-9,{layout}1:0-9", 120)


@case("more than memory holds is there, with each policy")
def more_than_memory():
    for policy in ("through", "back") if not LONG else ("through", "back", "selective"):
        with folder() as where, disk(where, "--node-write-policy", policy) as one, \
                Client(one.address) as a:
            for end in range(10, 1201, 10):
                a.put(f"k:{end - 10}-{end - 1}", bytes=40000, ms=20000).all("OK")
                # With `back` the rest is in memory, and there is room for the next ones.
                stored(one, end if policy == "through" else end - ALONE)
            found = a.get("k:0-1199", bytes=40000, ms=30000).sound()
            lost = one.metric("yuebing_node_demote_dropped_total")
            least = 1200 if policy == "through" else max(1200 - lost, 600)
            expect(found.counted["OK"] >= least, f"{policy}: {found.counted}, lost {lost}")
            expect(one.metric("yuebing_node_loaded_total") > 100, "some of them came up")


def blocks_of(size):
    """A value above 64 MiB is as many as it has parts of 16 MiB, and its manifest."""
    return 1 if size <= 64 * MIB else -(-size // (16 * MIB)) + 1


@case("S14: every size around a limit comes back whole from the disk, and from the object store")
def sizes():
    for tier, layout in [("ssd", "block"), ("object", "block")] + [("object", "packed")] * LONG:
        with folder() as where:
            words = ("--cluster-file", os.path.join(where, "cluster"), "--name", "n")
            words += ("--data-dir", os.path.join(where, "data"), "--node-ssd-bytes",
                      "2g" if LONG else "1g") if tier == "ssd" else \
                ("--object-store", "file:" + os.path.join(where, "store"),
                 "--node-object-layout", layout)
            memory = "512m" if LONG else "96m"
            keys, wanted = f"s:0-{len(SIZES) - 1}", ",".join(map(str, SIZES))
            one = serve(*words, memory=memory)
            with Client(one.address) as a:
                a.put(keys, bytes=wanted, batch=1, ms=30000 * SLOWER).all("OK")
                stored(one, sum(map(blocks_of, SIZES)))
            one.kill()
            with serve(*words, memory=memory) as two, Client(two.address) as a:
                known(a, keys, len(SIZES))
                found = a.fetch(keys, bytes=wanted, version=1, ms=30000 * SLOWER).all("OK")
                # Of one in parts it is said where its manifest is, and that has been read.
                expect(all(place == tier or size > 64 * MIB
                           for place, size in zip(found.tiers, SIZES)), f"{found}")
                expect(found.sizes == SIZES, f"{found}")
                a.remove(keys, ms=30000 * SLOWER).all("OK")
                gone(a, keys, len(SIZES))


def forecasts(role, tier):
    """What loads from the tier took, and what it forecast, is counted for it and for no other."""
    for word in ("ssd", "object"):
        here = word == tier
        expect(role.metric("yuebing_node_load_seconds_count", tier=word) == (101 if here else 0),
               f"loads from {word}")
        for name in ("took", "forecast"):
            told = role.metric(f"yuebing_node_load_{name}_seconds_total", tier=word)
            expect((told > 0) == here, f"{name} of {word}: {told}")


@case("a fetch brings what lies below memory, from the disk and from the object store")
def fetched():
    with folder() as where:
        stores = {"ssd": ("--data-dir", os.path.join(where, "data"), "--node-ssd-bytes", "256m"),
                  "object": ("--object-store", "file:" + os.path.join(where, "store"),
                             "--cluster-file", os.path.join(where, "cluster"), "--name", "n")}
        for tier, words in stores.items():
            one = serve(*words)
            with Client(one.address) as a:
                a.put("k:0-99,first:0", bytes="5000,70000").all("OK")
                stored(one, 101)
            one.kill()
            with serve(*words) as two, Client(two.address) as a:
                known(a, "k:0-99,first:0", 101)
                a.put("m:0-9", bytes="5000,70000").all("OK")
                a.get("first:0", bytes=5000).all("OK")  # It forecasts by what it has done.
                found = a.fetch("k:0-99,m:0-9,none:0-0", bytes="5000,70000", version=1,
                                ms=30000).each(*["OK"] * 110, "NOT_FOUND")
                expect(found.tiers == [tier] * 100 + ["dram"] * 10 + ["none"], f"{found.tiers}")
                expect(two.metric("yuebing_node_loaded_total") == 101, "each came up once")
                forecasts(two, tier)
                again = a.fetch("k:0-99", bytes="5000,70000", ms=30000).all("OK")
                expect(set(again.tiers) == {"dram"}, f"they stay in memory: {again.tiers}")


@case("kill -9 under load, again and again: nothing that was ended comes back, nothing is wrong")
def kill_rounds():
    seed = int(os.environ.get("YUEBING_TEST_SEED", random.randrange(1 << 30)))
    draw = random.Random(seed)
    print(f"# seed {seed}", flush=True)
    with folder() as where:
        words = ("--object-store", "file:" + os.path.join(where, "store")) if LONG else ()
        versions = [0] * 20  # Of the keys that are replaced: the last one that was acknowledged.
        for number in range(ROUNDS):
            one = disk(where, *words)
            with Client(one.address) as a, Client(one.address) as b:
                until(lambda: a.exist("probe:0-0", ms=2000).counted["REBUILDING"] == 0, "it serves")
                for past in range(number):
                    found = a.exist(f"gone{past}:0-9", ms=10000).sound()
                    expect(found.counted["OK"] == 0, f"round {number}: removed ones: {found}")
                for key, version in enumerate(versions):
                    found = a.get(f"up:{key}-{key}", bytes=3000, version="any").sound()
                    expect(found.items[0] != "OK" or found.versions[0] >= version,
                           f"round {number}, key {key}: {found}, not {version}")
                a.put(f"keep{number}:0-49", bytes=20000).all("OK")
                a.put(f"gone{number}:0-9", bytes=20000).all("OK")
                b.loop(0, "put", f"load{number}:0-4999", batch=20, bytes=20000)
                time.sleep(draw.random() * 0.3)
                a.remove(f"gone{number}:0-9").all("OK", "NOT_FOUND")  # The load may displace it.
                for key in range(len(versions)):
                    a.put(f"up:{key}-{key}", bytes=3000, version=number + 1, replace=1).all("OK")
                    versions[key] = number + 1
                time.sleep(draw.random() * 0.2)
                one.kill()
                b.kill()  # It would wait for its deadline.
        with disk(where, *words) as last, Client(last.address) as a:
            until(lambda: a.exist("probe:0-0", ms=2000).counted["REBUILDING"] == 0, "it serves")
            for past in range(ROUNDS):
                found = a.get(f"keep{past}:0-49,load{past}:0-99", bytes=20000,
                              ms=30000).sound()
                expect(set(found.counted) <= {"OK", "NOT_FOUND"}, f"round {past}: {found.counted}")
                gone(a, f"gone{past}:0-9", 10)


@case("a folder that another process has: a clear sentence, and the node lives on without it")
def locked():
    with folder() as where, disk(where), serve(
            "--data-dir", os.path.join(where, "data"), "--cluster-file",
            os.path.join(where, "another")) as two, Client(two.address) as a:
        expect(any("another process has" in line for line in two.log), f"{two.log}")
        a.put("k:0-9", bytes=1000).all("OK")
        a.get("k:0-9", bytes=1000).all("OK")


@case("a node that is killed and starts again says who still maps the memory that it had, and a "
      "client that has borrowed nothing maps it no more (RULES C3)")
def last_life():
    def mapped(client):
        with open(f"/proc/{client.pid}/maps", encoding="utf-8") as maps:
            return "memfd:yuebing-" in maps.read()

    def told(role):
        return [line for line in role.log if "this node's last life" in line]
    with folder() as where, disk(where) as one, Client(one.address) as borrower, \
            Client(one.address) as reader:
        borrower.put("k:0-9", bytes=5000).all("OK")
        for client in (borrower, reader):
            if set(client.ask("pin", keys="k:0-9").counted) == {"UNSUPPORTED"}:
                return
            expect(mapped(client), "it reads where the blocks lie")
        reader.ask("release").all("OK")
        expect(not told(one), f"the first life of all: {told(one)}")
        one.kill()
        until(lambda: not mapped(reader), "who has borrowed nothing has let go")
        with disk(where) as two:
            line = until(lambda: told(two), "it says so")[0]
            expect(re.search(rf'pids "?{borrower.pid}\b', line) and str(reader.pid) not in line,
                   f"{borrower.pid} has it, and {reader.pid} has not: {line}")
            expect(mapped(borrower), "what is borrowed stays")
        borrower.ask("release").sound()
        until(lambda: not mapped(borrower), "until it is given back")
        with disk(where) as three:
            expect(not told(three), f"nobody has it any more: {told(three)}")


main()
