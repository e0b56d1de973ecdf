# SPDX-License-Identifier: Apache-2.0
"""S22, a mixed batch: what is healthy comes at once, the rest fails in its own place."""
from store import Store
from yuebing import SLOWER, case, expect, expect_soon, main, until

BYTES = 16 << 10
D_MS = 1000


@case("of 1000 keys 3 are missing, 2 buffers are small, 10 lie on a stopped node: 985 come")
def healthy_ones_come_at_once():
    # A lease longer than the case: the node that stops stays a member.
    with Store(nodes=3, lease_ms=20000, words=()) as store, store.client(no_shm=1) as a, \
            store.client(no_shm=1) as b:
        a.put("k:0-494", bytes=BYTES, preferred="n0").all("OK")
        a.put("k:495-986", bytes=BYTES, preferred="n1").all("OK")
        a.put("bad:0-9", bytes=BYTES, preferred="n2").all("OK")
        keys = "k:0-99,gone:0-2,k:100-499,bad:0-9,k:500-986"
        rooms = [BYTES] * 1000
        rooms[50] = rooms[700] = 10  # Too small.
        rooms = ",".join(map(str, rooms))
        b.get(keys, bytes=BYTES).sound()
        store.nodes[2].pause()
        begin = b.ask("submit", id=0, op="get", keys=keys, bytes=BYTES, room=rooms, ms=D_MS)
        expect(begin.status == "OK", f"{begin}")
        early = until(lambda: (lambda there: there if there >= 985 else None)(
            b.ask("peek", id=0)["there"]), "the healthy ones are there")
        state = b.ask("poll", id=0).status
        expect(early == 985 and state in ("IN_PROGRESS", "OK"), f"{early} {state}")
        expect(b.ask("wait", id=0, ms=2 * D_MS).status == "OK", "it ends")
        found = b.ask("finish", id=0).sound()
        expect(found.counted["OK"] == 985 and found.counted["NOT_FOUND"] == 3, f"{found}")
        items = found.items
        expect(items[50] == items[700] == "TOO_SMALL", f"{found}")
        expect(items[100:103] == ["NOT_FOUND"] * 3, f"{items[95:105]}")
        expect(set(items[503:513]) <= {"TIMED_OUT", "PEER_LOST", "UNREACHABLE"},
               f"{items[500:515]}")
        again = b.get(keys, bytes=BYTES, ms=D_MS).sound()
        expect(again.counted["OK"] == 987, f"{again.counted}")
        expect(set(again.items[503:513]) <= {"TIMED_OUT", "PEER_LOST", "UNREACHABLE"},
               f"{again.items[500:515]}")
        print(f"# again: {again['ms']} ms")
        if SLOWER == 1:  # That is known for a while, which a sanitizer's look at all bytes takes.
            expect_soon(again["ms"] / 1000, 0.7 * D_MS / 1000, "a node that is known to be bad")
        expect_soon(found["ms"] / 1000, 1.2 * D_MS / 1000, "the first time")
        store.nodes[2].go_on()
        until(lambda: b.get(keys, bytes=BYTES).sound().counted["OK"] == 997, "it is well again")


main()
