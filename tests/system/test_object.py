# SPDX-License-Identifier: Apache-2.0
"""The object tier and its services: one that misbehaves on order, and a real one (SeaweedFS)."""
import os

from object import Driver, Played, Real, sign_with
from store import LEASE_MS, Client, Role
from yuebing import LONG, SLOWER, case, expect, folder, main, until

QUICK = ("pause_ns=1000000", "aside_ns=20000000", "attempt_timeout_ns=3000000000")


def same(got, wanted, what=""):
    expect(got == wanted, f"{what}: {got}, not {wanted}")


def started(driver, found=0):
    same(driver("start"), "ok")
    same(driver("recover"), f"OK {found}", "recovery")


@case("what is refused for a moment is tried again: 503 SlowDown, 500, a cut body, a short one")
def _():
    with Played() as service, Driver(service.url, *QUICK) as driver:
        started(driver)
        for what in ("slow down", 500, 502):
            service.order("PUT", 2, what)
            same(driver("store 1 5 100000"), "OK", what)
            same(driver("kill 1 5"), "OK", what)
            same(driver("store 2 5 100000"), "OK", what)
            for verb in ("slow down", 500, "cut"):
                service.order("GET", 2, verb)
                same(driver("load 2 5 100000"), "OK", verb)
            same(driver("kill 2 5"), "OK", what)
            break
        expect(driver.stats()["retries"] >= 6, f"{driver.stats()}")


@case("bytes that are wrong, or of a wrong length, are corrupt, and the block is dropped")
def _():
    with Played() as service, Driver(service.url, *QUICK) as driver:
        started(driver)
        for number, what in enumerate(("flip", "short"), 1):
            same(driver(f"store {number} 5 100000"), "OK")
            service.order("GET", 9, what)
            got = driver(f"load {number} 5 100000")
            service.order("GET", 0, what)
            expect(got in ("CORRUPT", "UNREACHABLE"), f"{what}: {got}")
        same(driver("load 1 5 100000"), "NOT_FOUND")


@case("an answer that is lost is resolved by a HEAD, and nothing is sent twice")
def _():
    with Played() as service, Driver(service.url, *QUICK) as driver:
        started(driver)
        service.order("PUT", 1, "late")
        same(driver("store 1 5 100000"), "OK")
        told = driver.stats()
        expect(told["resolved"] == 1 and told["put"] == 1 and told["head"] == 1, f"{told}")
        same(driver("kill 1 5"), "OK")
        expect(driver.stats()["kill_objects"] == 1, "an upload may be under way: a kill object")


@case("a PUT whose ETag is not the sum of what was sent is no success")
def _():
    with Played() as service, Driver(service.url, *QUICK) as driver:
        started(driver)
        service.order("PUT", 9, "flip")
        service.order("HEAD", 9, 404)
        got = driver("store 1 5 1000")
        expect(got in ("IN_DOUBT", "UNREACHABLE"), got)
        same(driver("find 1"), "0")


@case("a service that stands still ends what is asked of it in time, and nothing else waits")
def _():
    with Played() as service, Driver(service.url, *QUICK) as driver:
        started(driver)
        same(driver("store 1 5 1000"), "OK")
        same(driver("deadline 300"), "ok")
        service.order("GET", 1, "stall")
        same(driver("load 1 5 1000"), "TIMED_OUT")
        same(driver("load 1 5 1000"), "OK")
        service.order("PUT", 1, "stall")
        same(driver("store 2 5 1000"), "IN_DOUBT")


@case("what is flatly refused makes the tier step aside with the remedy, and it comes back")
def _():
    for method, what, word in (("PUT", 403, "403"), ("PUT", "no bucket", "create the bucket")):
        with Played() as service, Driver(service.url, *QUICK) as driver:
            started(driver)
            service.order(method, 9, what)
            service.order("LIST", 2, what)
            same(driver("store 1 5 1000"), "UNREACHABLE")
            why = driver("aside")
            expect(word in why, why)
            same(driver("kill 1 5"), "UNREACHABLE", "a remove is not acknowledged")
            service.order(method, 0, what)
            same(driver("back").strip(), "OK")
            same(driver("store 2 5 1000"), "OK")
            same(driver("load 2 5 1000"), "OK")


@case("recovery goes page by page over more than one page")
def _():
    with Played() as service, Driver(service.url, "concurrency=32", *QUICK) as driver:
        started(driver)
        same(driver("batch store 0 1200 64 5"), "1200 OK")
        same(driver("stop"), "ok")
        started(driver, 1200)
        same(driver("batch load 0 1200 64 5"), "1200 OK")


@case("a bucket may be part of the host's name, and credentials those of a profile in a file")
def _():
    with folder() as where, Played() as service:
        path = os.path.join(where, "credentials")
        with open(path, "w", encoding="utf-8") as file:
            file.write("[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n"
                       "[cold]\naws_access_key_id = fromfile\naws_secret_access_key = s\n")
        environment = {name: value for name, value in os.environ.items() if name[:4] != "AWS_"}
        environment.update(AWS_SHARED_CREDENTIALS_FILE=path)
        url = service.url.replace("127.0.0.1", "localhost") + "&style=host&profile=cold"
        with Driver(url, *QUICK, environment=environment) as driver:
            started(driver)
            for number, size in enumerate((0, 100, 100000), 1):
                same(driver(f"store {number} 5 {size}"), "OK")
                same(driver(f"load {number} 5 {size}"), "OK")
            same(driver("stop"), "ok")
            started(driver, 3)
        same((service.hosts, service.keys), ({"bucket.localhost"}, {"fromfile"}))


# ---- a real service -------------------------------------------------------------------------

# Of every kind of request: nothing, a byte, chunks and a bit, and parts (from 16 MiB on).
BLOCKS = {"k:0-9": 5000, "k:10-59": 5000, "none:0-0": 0, "byte:0-0": 1, "chunks:0-4": 65537,
          "parts:0-0": (16 << 20) + 4097}
COUNT = 68


def serve(service, where, layout):
    return Role("--memory", "64m", "--directory-lease-ms", str(LEASE_MS), "--name", "n",
                "--object-store", service.url.replace("/p?", f"/{layout}?"),
                "--node-object-layout", layout,
                "--cluster-file", os.path.join(where, "cluster"), command="serve").begin()


def stored(role, count):
    until(lambda: role.metric("yuebing_node_stored_total") >= count, f"{count} blocks are there",
          60 * SLOWER)


def whole(client, gone=()):
    """Each block that is not gone becomes known, and all its bytes are right."""
    for keys, size in BLOCKS.items():
        if keys not in gone:
            until(lambda k=keys: set(client.exist(k, ms=10000).counted) == {"OK"},
                  f"{keys} are known", 60 * SLOWER)
            client.get(keys, bytes=size, version=1, ms=30000).all("OK")
    for keys in gone:
        client.exist(keys).all("NOT_FOUND")


def survives(service, layout):
    gone = ("k:0-9", "chunks:0-4")
    with folder() as where:
        one = serve(service, where, layout)
        with Client(one.address) as a:
            for keys, size in BLOCKS.items():
                a.put(keys, bytes=size, ms=30000).all("OK")
            stored(one, COUNT)
        expect(one.stop() == 0, "it stops")
        two = serve(service, where, layout)
        with Client(two.address) as a:
            whole(a)
            for keys in gone:
                a.remove(keys, ms=30000).all("OK")
            a.put("late:0-4", bytes=3000).all("OK")
            stored(two, 5)
        two.kill()
        with serve(service, where, layout) as three, Client(three.address) as a:
            whole(a, gone)
            until(lambda: a.exist("late:0-4").counted["OK"] == 5, "the last ones are known")
            a.get("late:0-4", bytes=3000, version=1).all("OK")


def serves(service):
    """Blocks of all sizes, restarts, kills, flushes, in both layouts; who may not come in."""
    for layout in (), ("packed=1",):
        url = service.url.replace("/p?", f"/{len(layout)}?")
        with Driver(url, "concurrency=16", *layout) as driver:
            started(driver)
            for number, size in enumerate((0, 1, 65536, 200001, 20000000)):
                same(driver(f"store {number} 5 {size}"), "OK", size)
                same(driver(f"load {number} 0 {size}"), "OK", size)
            same(driver("load 4 5 1000000 7000000"), "OK", "a range")
            same(driver("batch store 100 60 4096 7"), "60 OK")
            same(driver("batch load 100 60 4096 7"), "60 OK")
            same(driver("kill 100 7"), "OK")
            same(driver("stop"), "ok")
            started(driver, 64)
            same(driver("load 100 0 4096"), "NOT_FOUND")
            same(driver("batch load 101 59 4096 7"), "59 OK")
            same(driver("load 4 0 20000000"), "OK")
            same(driver("flush 2"), "OK")
            same(driver("load 4 0 20000000"), "NOT_FOUND")
            same(driver("stop"), "ok")
            started(driver)
    for key, secret, name, word in (("testkey", "wrong", "bucket", "secret"),
                                    ("nobody", "testsecret", "bucket", "no such key"),
                                    ("testkey", "testsecret", "elsewhere", "create")):
        url = service.url.replace("s3://bucket", f"s3://{name}")
        with Driver(url, *QUICK, key=key, secret=secret) as driver:
            same(driver("start"), "ok")
            why = driver("aside")
            expect(word in why and "wrong" not in why and "testsecret" not in why, why)
            same(driver("store 1 5 100"), "UNREACHABLE")


@case("a real service: a tier over it, and a node, whose blocks are there after whatever ended it")
def _():
    sign_with(os.environ)
    with Real() as service:
        serves(service)
        for layout in ("block", "packed") if LONG else ("block",):
            survives(service, layout)


main()
