# SPDX-License-Identifier: Apache-2.0
"""S38 for the store: hits are hits, misses are no errors, and a flipped byte is noticed."""
import os
import re
import struct

from store import MIB, Store
from yuebing import Skipped, case, expect, main, until

MARK = (1 << 64) - 0x5953_0001  # A version that marks a value in memory.


def flip(pid, mark, at):
    """Flip a byte of the value that begins with `mark` in the pool of a node."""
    needle = struct.pack("<Q", mark)
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
        ranges = [(int(found[1], 16), int(found[2], 16)) for found in
                  (re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line) for line in maps) if found]
    flipped = 0
    try:
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            for begin, end in ranges:
                if not 8 * MIB <= end - begin <= 4096 * MIB:
                    continue  # No pool; what a sanitizer maps are terabytes.
                position = begin
                while position < end:
                    memory.seek(position)
                    piece = memory.read(min(MIB, end - position))
                    found = piece.find(needle)
                    if found >= 0:
                        memory.seek(position + found + at)
                        byte = memory.read(1)[0]
                        memory.seek(position + found + at)
                        memory.write(bytes([byte ^ 1]))
                        flipped += 1
                    position += MIB
    except PermissionError as why:
        raise Skipped(f"a child's memory may not be written to: {why}") from None
    return flipped


@case("100 gets of which 60 hit are 100 gets and 60 hits, for the client and for the nodes")
def gets_and_hits():
    with Store(nodes=2) as store, store.client(no_shm=1) as a, store.client(no_shm=1) as b:
        a.put("k:0-59", bytes=1000).all("OK")
        found = b.get("k:0-99", bytes=1000).sound()
        expect(found.counted == {"OK": 60, "NOT_FOUND": 40}, f"{found.counted}")
        counters = b.counters()
        expect(counters["gets"] == 100 and counters["hits"] == 60, f"{counters}")
        expect(counters["get_bytes"] == 60_000, f"{counters}")
        counters = a.counters()
        expect(counters["puts"] == 60 and counters["put_bytes"] == 60_000, f"{counters}")
        expect(store.metric("yuebing_node_gets_total", status="OK") == 60, "so do the nodes")
        expect(store.metric("yuebing_node_puts_total", status="OK") == 60, "and of puts")


@case("1000 misses and 500 refused puts are no lines of an error, and counted by their reason")
def misses_are_no_errors():
    with Store(nodes=1) as store, store.client() as a:
        a.put("k:0-99", bytes=100).all("OK")
        lines = len(store.nodes[0].log) + len(store.directory.log)
        a.get("miss:0-999", bytes=100).all("NOT_FOUND")
        for _ in range(5):
            a.put("k:0-99", bytes=100).all("EXISTS")
        errors = [line for line in store.nodes[0].log + store.directory.log
                  if re.search(r" (error|warn) ", line)][2:]
        expect(len(store.nodes[0].log) + len(store.directory.log) - lines < 5, f"{errors}")
        counters = a.counters()
        expect(counters["gets"] == 1000 and counters["hits"] == 0, f"{counters}")
        found = store.directory.metric("yuebing_directory_lookups_total")
        hits = store.directory.metric("yuebing_directory_hits_total")
        expect(found - hits >= 1000, f"{found} looked up, {hits} found")
        existed = store.directory.metric("yuebing_directory_existed_total")
        expect(existed == 500, f"{existed} puts were refused, for their key was there")


@case("used and capacity agree between the node, the directory's members and what was put")
def used_agrees():
    with Store(nodes=1, memory="64m") as store, store.client() as a:
        a.put("k:0-99", bytes=100_000).all("OK")
        until(lambda: store.used()["live"] >= 10_000_000, "it is counted")
        live = store.used()["live"]
        expect(live < 10_000_000 * 1.05, f"{live}")
        found = until(lambda: next((one for one in a.nodes() if one["used"] == live), None),
                      f"the members tell the same: {a.nodes()}")
        expect(found["capacity"] == 64 * MIB, f"{found}")
        a.remove("k:0-99").all("OK")
        until(lambda: sum(store.used().values()) == 0, f"{store.used()}")


@case("a flipped byte gives CORRUPT, to whole reads and to ranges, and the key can be put again")
def flipped_byte():
    for ranged in (0, 1):
        with Store(nodes=1, words=("--node-verify",)) as store, store.client(no_shm=1) as a:
            a.put("k:1", bytes=300_000, version=MARK).each("OK")
            a.put("other:1", bytes=300_000).each("OK")
            a.get("k:1", bytes=300_000).each("OK")
            expect(flip(store.nodes[0].pid, MARK, 200_001) >= 1, "its value is in memory")
            words = {"ranged": 1, "offset": 150_000, "room": 100_000} if ranged else {
                "room": 300_000}
            if ranged:  # What lies before is whole.
                a.get("k:1", ranged=1, offset=0, room=65536, version=MARK).each("OK")
            a.get("k:1", **words).each("CORRUPT")
            corrupt = store.metric("yuebing_node_gets_total", status="CORRUPT")
            expect(corrupt == 1, f"{corrupt} are counted")
            until(lambda a=a: a.put("k:1", bytes=300_000, version=2).items == ["OK"],
                  "it can be put again")
            a.get("k:1", bytes=300_000, version=2).each("OK")
            a.get("other:1", bytes=300_000).each("OK")


main()
