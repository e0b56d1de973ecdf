# SPDX-License-Identifier: Apache-2.0
"""S19, doubles inside a batch: each item has its own answer, in its place."""
from store import MIB, Store
from yuebing import case, expect, main

KEYS = "k:1,k:2,k:1,k:3,k:4,k:5"
TOO_LARGE = 64 * MIB
SIZES = f"1000,1000,1000,1000,{TOO_LARGE},1000"


@case("the first of two equal keys in a batch wins, what is there exists, too large is told")
def first_of_two_wins():
    with Store(memory="32m") as store, store.client() as client:
        client.put("k:3", bytes=1000, version=9).each("OK")
        client.put(KEYS, bytes=SIZES).each("OK", "OK", "EXISTS", "EXISTS", "TOO_LARGE", "OK")
        client.put(KEYS, bytes=SIZES).each("EXISTS", "EXISTS", "EXISTS", "EXISTS", "TOO_LARGE",
                                           "EXISTS")
        found = client.get("k:1,k:2,k:3,k:4,k:5,k:1", bytes=1000)
        found.each("OK", "OK", "OK", "NOT_FOUND", "OK", "OK")
        expect(found.versions[2] == 9, f"{found}")
        client.exist(KEYS).each("OK", "OK", "OK", "OK", "NOT_FOUND", "OK")
        found = client.remove(KEYS).sound()
        expect(sorted(found.items) == sorted(["OK"] * 4 + ["NOT_FOUND"] * 2), f"{found}")


@case("doubles with replace leave one of the two, whole")
def replace_leaves_one_whole():
    with Store() as store, store.client() as client:
        for number in range(20):
            found = client.put("k:1,k:1,k:2", bytes="1000,2000,3000", version=number + 1,
                               replace=1).sound()
            expect(found.items[2] == "OK" and "OK" in found.items[:2], f"{found}")
            found = client.get("k:1,k:2", room=3000).all("OK")
            expect(found.versions == [number + 1] * 2 and found.sizes[0] in (1000, 2000),
                   f"{found}")


main()
