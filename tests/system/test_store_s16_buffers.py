# SPDX-License-Identifier: Apache-2.0
"""S16, destination buffers: what is too small stays untouched, nothing is written behind it."""
from store import Store
from yuebing import case, expect, main


def check(client, pieces, status, **more):
    found = client.get("k:1", pieces=pieces, version=1, **more)
    found.each(status)
    expect(found.sizes == [100], f"{pieces}: size {found.sizes}")
    expect(found["touched"] == 0, f"{pieces}: a buffer that got nothing was written to")
    return found


@case("a value of 100 bytes goes where it fits, whatever the pieces, and nowhere else")
def where_it_fits():
    with Store() as store, store.client() as a, store.client() as b:
        a.put("k:1", bytes=100).each("OK")
        for pieces in ("100", "128", "64,64", "50,50", "64,0,36", "0,100", "99,1"):
            expect(check(b, pieces, "OK")["bytes"] == 100, pieces)
        for pieces in ("99", "0", "50,49", "33,33,33"):
            check(b, pieces, "TOO_SMALL")


@case("lists that cannot be are refused, and nothing is read or written")
def impossible_lists_refused():
    with Store() as store, store.client() as a, store.client() as b:
        a.put("k:1", bytes=100).each("OK")
        for pieces in ("max,max", "none"):
            for verb in ("get", "put"):
                found = b.ask(verb, keys="k:1", pieces=pieces)
                expect(found.status == "INVALID" or found.items == ["INVALID"],
                       f"{verb} {pieces}: {found}")
                expect(found["broken"] == 0 and found["touched"] == 0, f"{found}")
        a.get("k:1", bytes=100, version=1).each("OK")


@case("a range takes what there is, into as much room as there is")
def ranges():
    with Store() as store, store.client() as a:
        a.put("k:1", bytes=100).each("OK")
        for offset, room, bytes_ in ((0, 10, 10), (90, 10, 10), (90, 20, 10), (99, 1, 1),
                                     (100, 5, 0), (0, 100, 100), (3, 200, 97), (50, 0, 0)):
            found = a.get("k:1", ranged=1, offset=offset, room=room, version=1).each("OK")
            expect(found["bytes"] == bytes_, f"{offset} {room}: {found}")
        found = a.get("k:1", ranged=1, offset=101, room=5)
        expect(found.items == ["INVALID"] and found["touched"] == 0, f"{found}")


@case("a batch of good and too small buffers has each answer in its place")
def each_in_its_place():
    with Store() as store, store.client() as a:
        a.put("k:0-99", bytes=100).all("OK")
        found = a.get("k:0-99", room="100,99,128", version=1)
        expect(found.sound().items == (["OK", "TOO_SMALL", "OK"] * 34)[:100], f"{found}")
        expect(found["touched"] == 0, f"{found}")


main()
