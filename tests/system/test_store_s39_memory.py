# SPDX-License-Identifier: Apache-2.0
"""S39 for the store: memory that is lent, pools of odd sizes, pages that are not there."""
import http.client
import json
import os
import subprocess

from store import MIB, Store, node
from yuebing import PROGRAM, case, environment, expect, main, until


def in_huge_pages(pid):
    """How much of its pool a process has in huge pages, by its kernel; None: it does not say."""
    found, inside = None, False
    with open(f"/proc/{pid}/smaps", encoding="ascii", errors="replace") as smaps:
        for line in smaps:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                inside = "memfd:yuebing" in line and words[1].startswith("rw")
                found = found or (0 if inside else None)
            elif inside and words[0] in ("ShmemPmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:"):
                found += int(words[1]) * 1024
    return found


def can_make_them():
    """Whether the kernel makes huge pages of ordinary ones on demand: Linux 6.1 and later."""
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    try:
        with open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", encoding="ascii") as file:
            return release >= (6, 1) and "[deny]" not in file.read()
    except OSError:
        return False


def read(address, path):
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


@case("memory that is registered twice is usable until both are given back")
def registered_twice():
    with Store(nodes=1) as store, store.client() as a:
        expect(a.ask("lend", bytes=MIB).status == "OK", "once")
        expect(a.ask("lend", bytes=MIB).status == "OK", "twice")
        expect(a.ask("unlend").status == "OK", "once back")
        a.put("k:0-9", bytes=65536).all("OK")
        a.get("k:0-9", bytes=65536).all("OK")
        expect(a.ask("unlend").status == "OK", "twice back")
        expect(a.ask("unlend").status != "OK", "there is nothing more")


@case("a pool of an odd size works up to its last byte, and says its real page size")
def odd_pool():
    with Store(nodes=0) as store, store.client() as a:
        odd = node(store.directory.address, name="odd", memory="100000007").begin()
        store.nodes.append(odd)
        found = until(a.nodes, "it is known")[0]
        expect(found["capacity"] >= 99_000_000, f"{found}")
        a.put("k:0-79", bytes=MIB, batch=8).all("OK")
        a.get("k:0-79", bytes=MIB, batch=8).all("OK")


@case("huge pages that are not reserved: a clear refusal, or a start that shows what it really has")
def huge_pages():
    with Store(nodes=0) as store, store.client() as a:
        done = subprocess.Popen(
            [PROGRAM, "node", "--json", "--directory", store.directory.address, "--name", "huge",
             "--http-listen", "127.0.0.1:0", "--memory", "64m", "--node-huge-pages"],
            env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            until(lambda: done.poll() is not None or a.nodes(), "it refuses, or serves")
            if done.poll() is not None:
                text = done.stderr.read()
                expect(done.returncode != 0 and "huge" in text, f"{done.returncode}: {text}")
                return
            checked = subprocess.run(
                [PROGRAM, "node", "check", "--json", "--directory", store.directory.address],
                env=environment(), capture_output=True, text=True, check=False)
            expect(checked.returncode == 0, f"{checked}")
            found, = json.loads(checked.stdout)["nodes"]
            expect(found["huge_bytes"] == in_huge_pages(done.pid), f"{found}")
            expect(found["huge_bytes"] or not can_make_them(), f"{found}")
            port = json.loads(done.stdout.readline())["http"]
            shown, = json.loads(read(port, "/v1/nodes"))["nodes"]
            expect(shown["huge_bytes"] == found["huge_bytes"], f"{shown}")
            expect(f"yuebing_node_huge_bytes {found['huge_bytes']}" in read(port, "/metrics"),
                   "as a metric")
            a.put("k:0-9", bytes=MIB).all("OK")
            a.get("k:0-9", bytes=MIB).all("OK")
        finally:
            done.terminate()
            done.wait(10)
            done.stdout.close()
            done.stderr.close()


@case("borrowed blocks stay what they were until their release, which tells of a removal")
def borrowed_stays():
    with Store(nodes=1) as store, store.client() as a, store.client() as b:
        a.put("k:0-9", bytes=100_000).all("OK")
        found = b.ask("pin", keys="k:0-9")
        if set(found.counted) == {"UNSUPPORTED"}:
            return
        found.all("OK")
        expect(found.sizes == [100_000] * 10, f"{found}")
        b.ask("release", check=1).all("OK")
        b.ask("pin", keys="k:0-9").all("OK")
        a.remove("k:0-4", force=1).all("OK")
        a.put("k:0-4", bytes=100_000, version=2).all("OK")
        b.ask("release", check=1).each(*["STALE"] * 5, *["OK"] * 5)
        until(lambda: store.used()["quarantined"] == 0, f"{store.used()}")


@case("what a client had borrowed when it was killed comes back to the pool")
def borrower_dies():
    with Store(nodes=1) as store, store.client() as a:
        a.put("k:0-9", bytes=100_000).all("OK")
        with store.client() as b:
            if set(b.ask("pin", keys="k:0-9").counted) == {"UNSUPPORTED"}:
                return
            a.remove("k:0-9", force=1).all("OK")
            until(lambda: store.used()["quarantined"] >= 1_000_000, f"it is lent: {store.used()}")
            b.kill()
        until(lambda: sum(store.used().values()) == 0, f"it is back: {store.used()}")


main()
