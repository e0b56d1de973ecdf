# SPDX-License-Identifier: Apache-2.0
"""What must hold of each engine's connector, in two and more processes."""
from harness import free_port, need, same

MIB = 1 << 20
THREADS = 12


def copies(rank, kind, name, harness):
    if kind == "device":
        with harness.case(f"{name}: the bytes went through the device's driver"):
            need(rank.call("device_copies") > 0, "no copy was asked of the driver")


def vllm_store(harness, name, kind):
    blocks = 8  # 512 KiB each
    with harness.master() as master:
        saver, loader = harness.start("vllm_store", 2, kind)
        for rank, segment, channel in ((saver, 48 * MIB, 1), (loader, 0, 2)):
            rank.send("new", {"master": master, "kind": kind, "segment": segment, "blocks": 160,
                              "threads": THREADS, "channel": channel, "group_ids": True})
        for rank in (saver, loader):
            rank.answer()
        places = list(range(1, 1 + blocks))
        other = list(range(40, 40 + blocks))
        with harness.case(f"{name}: lookup of nothing finds nothing"):
            same(loader.call("lookup", prompt="a", blocks=blocks), 0, "blocks hit")
        with harness.case(f"{name}: what one process saves, scattered, is found by another"):
            found = saver.call("save", requests=[["r1", "a", places]])
            same(found["stats"].get("save_put"), [blocks, 0], "keys put and failed")
            same(loader.call("lookup", prompt="a", blocks=blocks), blocks, "blocks hit")
            same(loader.call("lookup", prompt="b", blocks=blocks), 0, "blocks hit")
        with harness.case(f"{name}: and is loaded with its bytes"):
            same(loader.call("load", requests=[["r1", "a", other]]), {"errors": [], "wrong": []},
                 "load")
        with harness.case(f"{name}: what is there is not saved twice"):
            found = saver.call("save", requests=[["r2", "a", places]])
            need("save_put" not in found["stats"], f"keys were put: {found['stats']}")
        with harness.case(f"{name}: a longer prompt hits its saved prefix"):
            same(loader.call("lookup", prompt="a", blocks=2 * blocks), blocks, "blocks hit")
        with harness.case(f"{name}: {THREADS} threads load at once, while the other saves"):
            for i in range(THREADS):
                saver.call("save", requests=[[f"t{i}", f"t{i}", places[:3]]])
            saver.send("save", {"requests": [["r3", "c", places]]})
            wanted = [[f"t{i}", f"t{i}", list(range(40 + 3 * i, 43 + 3 * i))]
                      for i in range(THREADS)]
            same(loader.call("load", requests=wanted), {"errors": [], "wrong": []}, "loads")
            saver.answer()
        with harness.case(f"{name}: a block that is not there is reported, the others are loaded"):
            found = loader.call("load", requests=[["r4", "a", other], ["r5", "none", [90, 91]]])
            same(found, {"errors": [90, 91], "wrong": []}, "load")
        copies(loader, kind, name, harness)
        with harness.case(f"{name}: a full store says -200, and the request is not saved again"
                          " until there is room"):
            same(saver.call("pin"), -200, "a put where there is no room")
            full = saver.call("save", requests=[["full", "full", places]])
            need(full["pressure"] and full["skipped"], f"no pressure was noticed: {full}")
            again = saver.call("save", requests=[[full["skipped"][0], "more", places]])
            same(again["stats"], {}, "operations of a request that is skipped")
            need(saver.call("reset"), "the store was not emptied")
            after = saver.call("save", requests=[["room", "room", places]])
            same((after["pressure"], after["skipped"]), (False, []), "pressure")
            same(loader.call("lookup", prompt="room", blocks=blocks), blocks, "blocks hit")
        with harness.case(f"{name}: the process whose memory it is killed: loads fail, none hangs"):
            saver.kill()
            found = loader.call("load", requests=[["dead", "room", other]])
            same(found, {"errors": other, "wrong": []}, "load")
            loader.call("save", requests=[["dead", "alone", other]])
        with harness.case(f"{name}: the one that is left closes"):
            loader.call("close")


def vllm_pd(harness, name, kind):
    port = free_port()
    prefill, decode, doomed = harness.start("vllm_pd", 3, kind)
    prefill.call("new", kind=kind, role="kv_producer", blocks=128, workers=THREADS, port=port,
                 engine="prefill")
    for rank in (decode, doomed):
        rank.call("new", kind=kind, role="kv_consumer", blocks=128, workers=THREADS, port=port,
                  engine="decode")

    def push(rank, requests):
        rank.call("ask", engine="prefill", requests=[[t, d] for t, _, d in requests])
        prefill.call("offer", requests=[[t, s] for t, s, _ in requests])
        same(rank.call("take", requests=[[t, d] for t, _, d in requests]),
             {"errors": [], "wrong": []}, "received")
        prefill.call("all_sent", transfers=[t for t, _, _ in requests])

    with harness.case(f"{name}: prefill pushes a request's blocks to where decode wants them"):
        push(decode, [["one", [3, 4, 5, 9], [20, 21, 22, 40]]])
    with harness.case(f"{name}: one prefill serves two decodes"):
        push(doomed, [["two", [3, 4, 5, 9], [7, 8, 9, 10]]])
    with harness.case(f"{name}: {2 * THREADS} requests at once, by {THREADS} threads"):
        push(decode, [[f"m{i}", list(range(5 * i, 5 * i + 5)), list(range(5 * i, 5 * i + 5))[::-1]]
                      for i in range(2 * THREADS)])
    copies(prefill, kind, name, harness)
    with harness.case(f"{name}: a decode that was killed: the transfer fails, none hangs"):
        doomed.call("ask", engine="prefill", requests=[["gone", [1, 2]]])
        # Prefill knows of the request before it loses the one who asked.
        push(decode, [["between", [1, 2], [3, 4]]])
        doomed.kill()
        prefill.call("offer", requests=[["gone", [1, 2]]])
        prefill.call("failed_send")
    with harness.case(f"{name}: the other decode is served as before"):
        push(decode, [["after", [30, 31, 32], [50, 52, 54]]])


def sglang_store(harness, name, kind):
    pages = 96
    with harness.master() as master:
        writer, reader = harness.start("sglang_store", 2, kind)
        with harness.case(f"{name}: both start: warm-up, buffers registered"):
            for rank, segment in ((writer, 128 * MIB), (reader, 0)):
                rank.call("new", master=master, kind=kind, segment=segment, pages=pages,
                          group_ids=True)
        with harness.case(f"{name}: group ids are known"):
            need(writer.call("grouped"), "ReplicateConfig has no group_ids")
        keys = [f"{i:064x}" for i in range(16)]
        places = list(range(16))
        with harness.case(f"{name}: pages of one process are found by another"):
            same(reader.call("exists", keys=keys), 0, "pages found before")
            same(writer.call("put", keys=keys, places=places), [True] * 16, "set")
            same(reader.call("exists", keys=keys + ["more"]), 16, "pages found")
        with harness.case(f"{name}: and come with their bytes"):
            same(reader.call("get", keys=keys, places=[p + 20 for p in places]),
                 {"got": [True] * 16, "wrong": []}, "get")
        with harness.case(f"{name}: pages that are there are set again without harm"):
            same(writer.call("put", keys=keys[:4], places=[40, 41, 42, 43]), [True] * 4, "set")
        with harness.case(f"{name}: a page that is missing is told apart"):
            same(reader.call("get", keys=[keys[0], "absent", keys[1]], places=[50, 51, 52]),
                 {"got": [True, False, True], "wrong": []}, "get")
        with harness.case(f"{name}: {THREADS} threads at once in each process"):
            same(writer.call("at_once", threads=THREADS, pages_each=6, prefix="t", put=True),
                 [True] * THREADS, "sets")
            reader.send("at_once", {"threads": THREADS, "pages_each": 6, "prefix": "t",
                                    "put": False})
            same(writer.call("at_once", threads=THREADS, pages_each=6, prefix="u", put=True),
                 [True] * THREADS, "sets")
            same(reader.answer(), [True] * THREADS, "gets")
        copies(reader, kind, name, harness)
        with harness.case(f"{name}: the process whose memory it is killed: gets fail, none hangs"):
            writer.kill()
            same(reader.call("get", keys=keys[:3], places=[1, 2, 3])["got"], [False] * 3, "get")
            same(reader.call("put", keys=["late"], places=[4]), [False], "set without memory")


def sglang_pd(harness, name, kind):
    pieces, size = 48, 256 * 1024
    prefill, decode, doomed = harness.start("sglang_pd", 3, kind)
    for rank in (prefill, decode, doomed):
        rank.call("new", kind=kind, pieces=pieces, size=size)
    where, gone = decode.call("where"), doomed.call("where")
    names = [f"s{i}" for i in range(pieces)]
    prefill.call("fill", names=names)
    with harness.case(f"{name}: a batch is written to the other process"):
        same(prefill.call("write", places=list(range(24)), batch=True, **where), 0, "batch")
    with harness.case(f"{name}: single pieces are written"):
        same(prefill.call("write", places=list(range(24, pieces)), batch=False, **where),
             [0] * 24, "transfers")
        same(decode.call("wrong", names=names), [], "pieces with wrong bytes")
    with harness.case(f"{name}: {THREADS} threads write at once on one engine"):
        names = [f"v{i}" for i in range(pieces)]
        prefill.call("fill", names=names)
        same(prefill.call("write_at_once", threads=THREADS, each=pieces // THREADS, **where),
             [0] * THREADS, "batches")
        same(decode.call("wrong", names=names), [], "pieces with wrong bytes")
    with harness.case(f"{name}: memory that is registered already is refused, and stays usable"):
        need(prefill.call("again") != 0, "it was registered twice")
        same(prefill.call("write", places=[0], batch=True, **where), 0, "batch")
    with harness.case(f"{name}: a peer that lives answers a probe"):
        same(prefill.call("probe", session=gone["session"]), 0, "probe")
    same(prefill.call("write", places=[0], batch=True, **gone), 0, "first batch")
    copies(prefill, kind, name, harness)
    with harness.case(f"{name}: a peer that was killed: probe and batch fail, none hangs"):
        doomed.kill()
        need(prefill.call("write", places=[1, 2], batch=True, **gone) < 0, "the batch succeeded")
        need(prefill.call("probe", session=gone["session"]) != 0, "the probe succeeded")
    with harness.case(f"{name}: the other peer is written to as before"):
        same(prefill.call("write", places=list(range(8)), batch=True, **where), 0, "batch")
        same(prefill.call("probe", session=where["session"]), 0, "probe")


def lmcache_store(harness, name, meta):
    with harness.master() as master:
        writer, reader = harness.start("lmcache_store", 2)
        for rank, segment in ((writer, 128 * MIB), (reader, 0)):
            rank.call("new", master=master, segment=segment, save_chunk_meta=meta)
        names = [f"c{i}" for i in range(8)]
        with harness.case(f"{name}: the memory of the CPU is registered"):
            need(writer.call("registered") and reader.call("registered"), "it is not registered")
        with harness.case(f"{name}: chunks of one process are found by another"):
            same(reader.call("contains", names=names), 0, "chunks found before")
            writer.call("put", names=names)
            same(reader.call("contains", names=names + ["more"]), 8, "chunks found")
        with harness.case(f"{name}: and come with their bytes"):
            same(reader.call("get", names=names), ["right"] * 8, "get")
        with harness.case(f"{name}: chunks are put in a batch"):
            writer.call("put", names=["b1", "b2", "b3"], batched=True)
            same(reader.call("get", names=["b1", "b2", "b3"]), ["right"] * 3, "get")
        with harness.case(f"{name}: a last chunk of fewer tokens keeps its length"):
            writer.call("put", names=["short"], tokens=24)
            same(reader.call("get", names=["short"], tokens=24), ["right"], "get")
        with harness.case(f"{name}: a chunk that is missing is told apart"):
            same(reader.call("get", names=[names[0], "absent", names[1]]),
                 ["right", "missing", "right"], "get")
        with harness.case(f"{name}: {2 * THREADS} puts and gets at once, by its threads"):
            many = [f"m{i}" for i in range(2 * THREADS)]
            writer.call("put", names=many)
            same(reader.call("get", names=many, singly=True), ["right"] * len(many), "get")
        with harness.case(f"{name}: the process whose memory it is killed: gets fail, none hangs"):
            writer.kill()
            same(reader.call("get", names=names[:2]), ["missing"] * 2, "get")
        with harness.case(f"{name}: the one that is left closes"):
            reader.call("close")


def checkpoint_p2p(harness, name, kind):
    pieces, size = 48, 256 * 1024
    reader, owner, doomed = harness.start("checkpoint_p2p", 3, kind)
    for rank, number in ((reader, 0), (owner, 1), (doomed, 2)):
        rank.call("new", kind=kind, rank=number, pieces=pieces, size=size)
    names = [f"w{i}" for i in range(pieces)]
    for rank in (owner, doomed):
        rank.call("fill", names=names)
    where, gone = owner.call("where"), doomed.call("where")
    with harness.case(f"{name}: a rank reads a bucket of another"):
        reader.call("read", places=list(range(pieces)), **where)
        same(reader.call("wrong", names=names), [], "pieces with wrong bytes")
    with harness.case(f"{name}: {THREADS} threads read at once"):
        reader.call("fill", names=[f"x{i}" for i in range(pieces)])
        reader.call("read_at_once", threads=THREADS, each=pieces // THREADS, **where)
        same(reader.call("wrong", names=names), [], "pieces with wrong bytes")
    with harness.case(f"{name}: a bucket is taken back and registered anew"):
        same(owner.call("leave"), 1, "tensors taken back")
        reader.call("read", places=[0, 1], **where)
    copies(reader, kind, name, harness)
    with harness.case(f"{name}: a rank that was killed: the read fails, none hangs"):
        reader.call("read", places=[5], **gone)
        doomed.kill()
        try:
            reader.call("read", places=[6, 7], **gone)
        except Exception as error:
            need("AssertionError" in str(error), f"another error: {error}")
        else:
            need(False, "the read succeeded")
    with harness.case(f"{name}: the other rank is read from as before"):
        reader.call("fill", names=[f"x{i}" for i in range(pieces)])
        reader.call("read", places=list(range(pieces)), **where)
        same(reader.call("wrong", names=names), [], "pieces with wrong bytes")


def bundles(harness, name):
    with harness.master() as master:
        owner, reader = harness.start("bundles", 2)
        owner.call("new", master=master, segment=64 * MIB)
        reader.call("new", master=master, segment=0)
        with harness.case(f"{name}: an object of arrays is put, chunked and whole, and found"):
            for copy_mode in ("auto", "copy"):
                for chunk in (None, 1 << 18):
                    told = f"{copy_mode} {chunk}"
                    ref = owner.call("put", name=told, copy_mode=copy_mode, chunk_bytes=chunk)
                    same(reader.call("wrong", name=told, ref=ref), [], "arrays with wrong bytes")
        with harness.case(f"{name}: one that was removed is not found"):
            reader.call("remove", ref=ref)
            try:
                owner.call("wrong", name=told, ref=ref)
            except Exception as error:
                print(f"        {error}"[:200])
            else:
                need(False, "it was found")
        with harness.case(f"{name}: rows of two stages are found whole, in ranges and one by one"):
            handle = owner.call("put_rows", name="rows")
            for rows in (None, list(range(5, 9)), [3, 60, 7, 7]):
                same(reader.call("wrong_rows", name="rows", handle=handle, rows=rows), [],
                     f"columns with wrong values of rows {rows}")
        with harness.case(f"{name}: the process whose memory it is killed: reads fail, none hangs"):
            owner.kill()
            try:
                reader.call("wrong_rows", name="rows", handle=handle, rows=None)
            except Exception as error:
                print(f"        {error}"[:200])
            else:
                need(False, "what was lost was found")


def all_of_them(harness):
    kinds = ("host", "device") if harness.standin else ("host",)
    for kind in kinds:
        harness.group(f"vllm_store, {kind}", vllm_store, kind)
        harness.group(f"vllm_pd, {kind}", vllm_pd, kind)
        harness.group(f"sglang_store, {kind}", sglang_store, kind)
        harness.group(f"sglang_pd, {kind}", sglang_pd, kind)
        harness.group(f"checkpoint_p2p, {kind}", checkpoint_p2p, kind)
    harness.group("lmcache_store, save_chunk_meta=true", lmcache_store, True)
    harness.group("lmcache_store, save_chunk_meta=false", lmcache_store, False)
    harness.group("bundles", bundles)
