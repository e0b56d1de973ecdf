# SPDX-License-Identifier: Apache-2.0
"""S14, sizes around every limit: put and get agree, and nothing is not a missing key."""
import os
import subprocess

from store import MIB, Store
from yuebing import LONG, PROGRAM, case, environment, expect, folder, main

SIZES = [0, 1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 4 * MIB - 1, 4 * MIB + 1, 16 * MIB - 1,
         16 * MIB + 1] + ([100 * MIB + 1] if LONG else [])
LIST = ",".join(map(str, SIZES))
KEYS = f"k:0-{len(SIZES) - 1}"
MEMORY = "1g" if LONG else "384m"


@case("values of every size come back whole, in one batch and one by one")
def every_size_whole():
    with Store(nodes=1, memory=MEMORY) as store, store.client() as a, store.client() as b:
        a.put(KEYS, bytes=LIST, batch=1).all("OK")
        for batch in (1, len(SIZES)):
            found = b.get(KEYS, bytes=LIST, batch=batch, version=1).all("OK")
            expect(found.sizes == SIZES, f"{found.sizes}")
        found = b.exist(KEYS).all("OK")
        expect(found.sizes == SIZES or all(a >= b for a, b in zip(found.sizes, SIZES)),
               f"{found.sizes}")
        b.remove(KEYS).all("OK")
        a.put(KEYS, bytes=LIST, version=2).all("OK")
        b.get(KEYS, bytes=LIST, version=2).all("OK")


@case("an empty value is there, and a missing key is not")
def empty_is_not_missing():
    with Store(nodes=1) as store, store.client() as a, store.client() as b:
        b.get("empty:1", bytes=10).each("NOT_FOUND")
        b.exist("empty:1").each("NOT_FOUND")
        b.remove("empty:1").each("NOT_FOUND")
        a.put("empty:1", bytes=0).each("OK")
        for room in (0, 10):
            found = b.get("empty:1", bytes=room, version=1).each("OK")
            expect(found.sizes == [0] and found["bytes"] == 0, f"{found}")
        b.exist("empty:1").each("OK")
        a.put("empty:1", bytes=0).each("EXISTS")
        b.remove("empty:1").each("OK")
        b.get("empty:1", bytes=10).each("NOT_FOUND")
        b.exist("empty:1").each("NOT_FOUND")


@case("a key may be 1024 bytes long, and not one more, and not none")
def longest_key():
    with Store(nodes=1) as store, store.client() as a:
        a.put("k:1", pad=1024, bytes=100).each("OK")
        a.get("k:1", pad=1024, bytes=100).each("OK")
        a.get("k:1", pad=1023, bytes=100).each("NOT_FOUND")
        answer = a.put("k:1", pad=1025, bytes=100)
        expect("INVALID" in (answer.status, *answer.items), f"{answer}")


@case("the commands carry the same bytes through files and pipes")
def commands_carry_the_same():
    with Store(nodes=1, memory=MEMORY) as store, folder() as where, store.client() as client:
        there = ["--directory", store.directory.address]

        def tool(*words, data=b""):
            return subprocess.run([PROGRAM, *words, *there], input=data, capture_output=True,
                                  env=environment(), check=False)

        for size in SIZES if LONG else SIZES[:8]:
            value = os.urandom(min(size, 1 << 16)) * (size // (1 << 16) + 1)
            value = value[:size]
            path = os.path.join(where, "value")
            with open(path, "wb") as out:
                out.write(value)
            done = tool("put", f"file-{size}", path)
            expect(done.returncode == 0, f"{size}: {done}")
            done = tool("get", f"file-{size}", "-")
            expect(done.returncode == 0 and done.stdout == value, f"{size}: {done.stderr}")
            done = tool("put", f"pipe-{size}", "-", data=value)
            expect(done.returncode == 0, f"{size}: {done.stderr}")
            done = tool("get", f"pipe-{size}", path)
            with open(path, "rb") as found:
                expect(done.returncode == 0 and found.read() == value, f"{size}: {done.stderr}")
            expect(tool("rm", f"file-{size}", f"pipe-{size}").returncode == 0, f"rm {size}")
        expect(tool("get", "missing", "-").returncode != 0, "a missing key is a failure")
        expect(client.ask("list").get("count") == 0, "nothing is left")


main()
