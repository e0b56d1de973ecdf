# SPDX-License-Identifier: Apache-2.0
"""S25, remove against readers: what is being read is read whole, and gone for everybody else."""
from store import MIB, Store
from yuebing import LONG, case, expect, expect_soon, main, until


@case("a missing key is NOT_FOUND, and an exist does not delay its removal")
def missing_is_not_found():
    with Store() as store, store.client() as a, store.client() as b:
        a.remove("no:1").each("NOT_FOUND")
        for number in range(50):
            a.put(f"k:{number}", bytes=1000).each("OK")
            b.exist(f"k:{number}").each("OK")
            a.remove(f"k:{number}").each("OK")
            b.exist(f"k:{number}").each("NOT_FOUND")
            b.get(f"k:{number}", bytes=1000).each("NOT_FOUND")
            a.remove(f"k:{number}").each("NOT_FOUND")


@case("a removal during a read: the reader gets the whole old value or a failure, never garbage")
def reader_sees_whole_or_nothing():
    with Store(nodes=1, memory="256m") as store, store.client() as a, \
            store.client(no_shm=1) as reader:
        for number in range(20 if LONG else 6):
            key = f"slow:{number}"
            a.put(key, bytes=32 * MIB, version=number + 1).each("OK")
            reader.send("get", keys=key, bytes=32 * MIB, ms=20000)
            found = a.remove(key, force=number % 2).sound()
            expect(found.items[0] in ("OK", "LEASED", "BUSY"), f"{found}")
            got = reader.receive().sound()
            expect(got.items[0] in ("OK", "STALE", "NOT_FOUND"), f"{got}")
            if found.items == ["OK"]:
                reader.get(key, bytes=32 * MIB).each("NOT_FOUND")
                a.put(key, bytes=1000).each("OK")
                a.remove(key).each("OK")
        until(lambda: store.used()["quarantined"] == 0, f"{store.used()}")


@case("what is held stays, unless it is forced")
def held_stays():
    with Store() as store, store.client() as a, store.client() as b:
        a.put("k:1", bytes=1000).each("OK")
        b.exist("k:1", hold=30000).each("OK")
        a.remove("k:1").each("LEASED")
        b.get("k:1", bytes=1000).each("OK")
        a.remove("k:1", force=1).each("OK")
        b.get("k:1", bytes=1000).each("NOT_FOUND")


@case("after remove_all under load everything can be put and read again")
def remove_all_under_load():
    with Store(nodes=2) as store, store.client() as a, store.client() as b:
        a.put("k:0-999", bytes=1000, version=1).all("OK")
        b.loop(0, "get", "k:0-99", batch=5, bytes=1000, threads=2)
        for version in range(2, 6):
            until(lambda: a.exist("k:0-99").counted["OK"] == 100, "they are there")
            gone = a.ask("remove_all", force=version % 2)
            expect(gone.status == "OK", f"{gone}")
            found = a.exist("k:0-999").sound()
            if version % 2:
                expect(found.counted["NOT_FOUND"] == 1000 and gone["count"] >= 1000,
                       f"{found} {gone}")
                a.put("k:0-999", bytes=1000, version=version).all("OK")
            else:
                expect(found.counted["NOT_FOUND"] >= 900, f"{found} {gone}")
                a.put("k:0-999", bytes=1000, version=version).all("OK", "EXISTS")
            a.get("k:0-999", bytes=1000).all("OK")
        found = b.unloop(0)
        expect(found["wrong"] == 0 and set(found["items"]) <= {"OK", "NOT_FOUND", "STALE"},
               f"{found}")


@case("keys that match go, the others stay; a listing names what is there")
def matching_keys_go():
    with Store(nodes=2) as store, store.client() as a:
        a.put("ab:0-99,b:0-99", bytes=100).all("OK")
        expect(a.ask("list")["count"] == 200, "all")
        found = a.ask("list", match="prefix", pattern="ab:")
        expect(sorted(found["keys"]) == sorted(f"ab:{i}" for i in range(100)), f"{found}")
        expect(a.ask("list", stop_after=7)["count"] == 7, "a visitor may stop")
        found = a.ask("list", match="regex", pattern="^b:[0-9]$")
        expect(sorted(found["keys"]) == [f"b:{i}" for i in range(10)], f"{found}")
        gone = a.ask("remove_matching", match="prefix", pattern="ab:")
        expect(gone.status == "OK" and gone["count"] == 100, f"{gone}")
        a.exist("ab:0-99").all("NOT_FOUND")
        a.get("b:0-99", bytes=100).all("OK")
        gone = a.ask("remove_matching", match="regex", pattern="^b:[0-9]$")
        expect(gone["count"] == 10 and a.ask("list")["count"] == 90, f"{gone}")


@case("a removal that a stopped node cannot hear is not acknowledged, and done when told again")
def lost_answers():
    with Store(nodes=2, lease_ms=4000) as store, store.client(no_shm=1) as a, \
            store.client(no_shm=1) as b:
        for forced in (False, True):
            a.put("k:0-9", bytes=1000, preferred="n0").all("OK")
            b.get("k:0-9", bytes=1000).all("OK")
            store.nodes[0].pause()
            if forced:
                found = a.ask("remove_all", force=1, ms=300)
                expect(found.status in ("IN_DOUBT", "TIMED_OUT"), f"{found}")
            else:
                found = a.remove("k:0-9", ms=300).all("IN_DOUBT", "TIMED_OUT")
            expect_soon(found["ms"] / 1000, 1.5, f"{found}")
            store.nodes[0].go_on()
            if forced:
                expect(a.ask("remove_all", force=1).status == "OK", "once more")
            else:
                a.remove("k:0-9").all("OK", "NOT_FOUND")
            b.get("k:0-9", bytes=1000).all("NOT_FOUND")
            b.exist("k:0-9").all("NOT_FOUND")


@case("a client that leaves, or dies, takes no key with it, and no other tenant's")
def leaving_removes_nothing():
    with Store() as store, store.client() as a:
        with store.client() as b:
            b.put("b:0-9", bytes=100).all("OK")
        with store.client(tenant="other") as c:
            c.put("b:0-9", bytes=200).all("OK")
            a.put("a:0-9", bytes=100).all("OK")
            c.get("a:0-9", bytes=100).all("NOT_FOUND")
            expect(c.ask("remove_all", force=1)["count"] == 10, "its own")
            c.kill()
        a.get("a:0-9,b:0-9", bytes=100).all("OK")


main()
