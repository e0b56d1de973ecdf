# SPDX-License-Identifier: Apache-2.0
"""S17, put twice: the first stays; a full pool says so at once."""
from store import MIB, Store
from yuebing import case, expect, expect_soon, main, until


@case("a second put of a key, of the same size or not, is EXISTS and changes nothing")
def second_is_exists():
    with Store() as store, store.client() as a, store.client() as b:
        a.put("k:1", bytes=MIB, version=1).each("OK")
        until(lambda: store.used()["live"] >= MIB, "it is counted")
        used = store.used()
        a.put("k:1", bytes=MIB, version=2).each("EXISTS")
        b.put("k:1", bytes=2 * MIB, version=3).each("EXISTS")
        found = b.get("k:1", room=2 * MIB).each("OK")
        expect(found.versions == [1] and found.sizes == [MIB], f"{found}")
        until(lambda: store.used() == used, f"{store.used()} is {used}")


@case("a new version replaces the whole value; the memory of the old one comes back")
def replace_frees_the_old():
    with Store() as store, store.client() as a, store.client() as b:
        for version in range(1, 30):
            a.put("k:1", bytes=version * 100_000, version=version, replace=1).each("OK")
            found = b.get("k:1", room=3_000_000).each("OK")
            expect(found.versions == [version] and found.sizes == [version * 100_000], f"{found}")
        until(lambda: 2_900_000 <= store.used()["live"] < 3_100_000
              and store.used()["quarantined"] == 0, f"{store.used()}")


@case("a put into a pool that is full of what may not go says NO_SPACE at once")
def full_says_so_at_once():
    with Store(memory="32m") as store, store.client() as client:
        number = 0
        while client.put(f"pin:{number}", bytes=MIB, hard=1).items == ["OK"]:
            number += 1
        expect(number >= 24, f"only {number} fit")
        for key in ("more:0", "more:0", "more:1"):  # The same key again, too.
            found = client.put(key, bytes=MIB).each("NO_SPACE")
            expect_soon(found["ms"] / 1000, 0.05, f"{found}")
        client.get(f"pin:0-{number - 1}", bytes=MIB, batch=8).all("OK")
        client.put("pin:0", bytes=MIB).each("EXISTS")
        client.remove("pin:0").all("OK", "LEASED")
        client.remove("pin:0", force=1).all("OK", "NOT_FOUND")
        client.put("more:0", bytes=MIB).each("OK")


main()
