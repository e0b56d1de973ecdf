# SPDX-License-Identifier: Apache-2.0
"""A conductor has its instructions carried out: by nodes of a real store, each once, with one
record, also while nodes are killed."""
import http.client
import json
import os
import random

from store import LEASE_MS, Client, Role, Store, node
from yuebing import DEADLINE_S, SLOWER, Serve, case, expect, folder, main, run, until, window

BLOCK = 16
NAME = "block-000000"  # With a colon and three digits: 16 bytes, as yb_key_chain() makes them.
PATIENCE_S = 2 * DEADLINE_S
INSTANCE = {"model": "m", "roles": "both", "incarnation": 1, "kv_bytes": 4096, "layers": 4,
            "prefill_token_ns": 10**7, "step_base_ns": 10**6, "load_rate": 10**10,
            "in_rate": 10**9, "out_rate": 10**9}


def keys(first, last):
    return [f"{NAME}:{i}".encode().hex() for i in range(first, last + 1)]


def conductor(directory, *words):
    return Serve("--http", "127.0.0.1:0", "--block-tokens", str(BLOCK), "--directory", directory,
                 *words, command="conductor")


def call(server, method, path, body=None):
    connection = http.client.HTTPConnection(server.ready["http"], timeout=PATIENCE_S)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def post(server, path, **body):
    code, found = call(server, "POST", path, body)
    expect(code == 200, f"{path} {str(body)[:200]}: {code} {found}")
    return found


def ready(server, nodes):
    def looks():
        code, found = call(server, "GET", "/v1/conductor")
        return code == 200 and found["nodes"] == nodes
    until(looks, f"{nodes} nodes are known", PATIENCE_S)


def audit(server):
    code, found = call(server, "GET", "/v1/audit")
    expect(code == 200 and found["issued"] == found["terminal"] + found["open"] and
           sum(found["outcomes"].values()) == found["terminal"] and
           sum(found["open_for"].values()) == found["open"], f"{found}")
    return found


def closed(server):
    """Every instruction has ended; what became of them."""
    until(lambda: audit(server)["open"] == 0, "no instruction is open", PATIENCE_S)
    return audit(server)["outcomes"]


def records(server):
    return {one["id"]: one for one in call(server, "GET", "/v1/instructions")[1]["instructions"]}


def known(server, first, last, tier, count):
    """Until the conductor knows that so many of these lie there, at one node."""
    def there():
        places = post(server, "/v1/query", hashes=keys(first, last), model="m")["places"]
        return any(place[tier] == count for place in places)
    until(there, f"{count} in {tier} are known of", PATIENCE_S)


def holds(server, first, last):
    """The nodes that have all of these in memory."""
    places = post(server, "/v1/query", hashes=keys(first, last), model="m")["places"]
    return {place["name"] for place in places if place["dram"] == last - first + 1}


def spans(server, trace, kind=None):
    """What a process did for a trace."""
    return [one for one in call(server, "GET", f"/v1/spans?trace={trace}")[1]["spans"]
            if kind in (None, one["kind"])]


def arrivals(server):
    """How many arrivals were measured, by the tier that they came from."""
    series = call(server, "GET", "/v1/stats")[1]["stats"]
    return {one["labels"]["tier"]: one["count"] for one in series
            if one["name"] == "yuebing_conductor_decision_to_arrival_seconds" and one["count"] > 0}


def moved(server, first, last, to, **more):
    """A move by hand, until it has ended: its record."""
    told = post(server, "/v1/move", hashes=keys(first, last), to=to,
                **{"kind": "prefetch", "deadline_us": 60 * 10**6 * SLOWER, **more})
    until(lambda: told["id"] in records(server), f"{told} has ended", PATIENCE_S)
    return records(server)[told["id"]]


@case("what a decision needs from a node's disk is there before any engine asks for it")
def _():
    with folder() as where:
        def disk():
            return Role("--memory", "16m", "--data-dir", os.path.join(where, "data"),
                        "--node-ssd-bytes", "64m", "--directory-lease-ms", str(LEASE_MS),
                        command="serve").begin()
        store = disk()
        with Client(store.address) as writer:
            writer.put(f"{NAME}:100-119", bytes=50000).all("OK")
            until(lambda: store.metric("yuebing_node_stored_total") >= 20, "they are below")
            expect(store.metric("yuebing_link_received_bytes_total") >= 20 * 50000, "by its peer")
        store.kill()  # So that they are nowhere else.
        with disk() as store, conductor(store.address) as server:
            name = store.ready["nodes"][0]["name"]
            until(lambda: call(server, "GET", "/readyz")[0] == 200, "ready", PATIENCE_S)
            post(server, "/v1/register", **INSTANCE, name="e0", node=name)
            known(server, 100, 119, "ssd", 20)
            told = post(server, "/v1/schedule", hashes=keys(100, 119), model="m")
            mine = [one for one in told["instructions"] if one["carrier"] == "conductor"]
            expect(len(mine) == 1 and mine[0]["from_tier"] == "ssd" and mine[0]["count"] == 20,
                   f"{told}")
            outcomes = closed(server)
            expect(outcomes["in_time"] + outcomes["late"] == 1, f"{outcomes}")
            record = records(server)[mine[0]["id"]]
            expect(record["tier"] == "ssd" and record["bytes"] == 20 * 50000 and
                   record["finished_us"] >= record["started_us"] > 0, f"{record}")
            # Those after the last that somebody knows; all, for who knew another process.
            for after, ids in ((0, [record["id"]]), (1, []), (99, [record["id"]])):
                told_now = call(server, "GET", f"/v1/instructions?after={after}")[1]
                expect(told_now["last"] == 1 and
                       [one["id"] for one in told_now["instructions"]] == ids, f"{told_now}")
            trace, decide = told["traceparent"].split("-")[1:3]
            fetch, = spans(server, trace, "fetch")
            expect(fetch["parent"] == decide and fetch["number"] == record["id"], f"{fetch}")
            expect(spans(server, trace, "decide")[0]["span"] == decide, "and that is the decision")
            known(server, 100, 119, "dram", 20)
            expect(store.metric("yuebing_node_instructed_total", outcome="moved") == 20, "counted")
            until(lambda: arrivals(server) == {"ssd": 1}, "its arrival is measured")
            with Client(store.address) as reader:
                reader.get(f"{NAME}:100-119", bytes=50000).all("OK")
            # The engine's own word comes later, and is not a second record.
            post(server, "/v1/done", decision=told["decision"], stage="ended",
                 instructions=[{"id": mine[0]["id"], "outcome": "already_there"}])
            expect(closed(server)["already_there"] == 0, "the first word counts")
            done = run("trace", "--audit", "--json", "--at", server.ready["http"])
            expect(done.code == 0 and json.loads(done.out)["open"] == 0, done.err)


@case("hot blocks come from the object store to memory before anybody waits for them")
def _():
    with folder() as where:
        def below():
            return Role("--memory", "16m", "--object-store", "file:" + os.path.join(where, "store"),
                        "--cluster-file", os.path.join(where, "cluster"), "--name", "n",
                        "--directory-lease-ms", str(LEASE_MS), command="serve").begin()
        store = below()
        with Client(store.address) as writer:
            writer.put(f"{NAME}:100-119", bytes=50000).all("OK")
            until(lambda: store.metric("yuebing_node_stored_total") >= 20, "they are below")
        expect(store.stop() == 0, "it stops")
        with below() as store, conductor(store.address, "--conductor-heat-ms", "200") as server:
            until(lambda: call(server, "GET", "/readyz")[0] == 200, "ready", PATIENCE_S)
            node_name = store.ready["nodes"][0]["name"]

            def asked():  # Who computes at no cost waits for nothing: no decision moves anything.
                post(server, "/v1/register", name="e0", node=node_name,
                     **{**INSTANCE, "prefill_token_ns": 1})
                told = post(server, "/v1/schedule", hashes=keys(100, 119), model="m")
                expect(told["instructions"] == [], f"{told}")
                post(server, "/v1/done", decision=told["decision"], stage="ended")
                return told["hit_blocks"]
            until(lambda: asked()["object"] == 20, "they are known of", PATIENCE_S)
            until(lambda: asked()["dram"] == 20, "they are in memory", PATIENCE_S)
            expect(any(one["reason"] == "heat" and one["kind"] == "prefetch" and
                       one["tier"] == "object" for one in records(server).values()) or
                   audit(server)["open"] > 0, f"{records(server)}")
            expect(server.metrics()["yuebing_conductor_heat_moves_total"] >= 1, "counted")
            closed(server)


@case("what came ahead of its time is open until somebody reads it, and the account says why")
def _():
    with folder() as where:
        def disk():
            return Role("--memory", "16m", "--data-dir", os.path.join(where, "data"), "--name", "n",
                        "--node-ssd-bytes", "64m", "--directory-lease-ms", str(LEASE_MS),
                        command="serve").begin()
        store = disk()
        with Client(store.address) as writer:
            writer.put(f"{NAME}:100-119", bytes=50000).all("OK")
            until(lambda: store.metric("yuebing_node_stored_total") >= 20, "they are below")
        store.kill()
        with disk() as store, conductor(store.address) as server:
            until(lambda: call(server, "GET", "/readyz")[0] == 200, "ready", PATIENCE_S)
            post(server, "/v1/register", **INSTANCE, name="e0", node="n")
            known(server, 100, 119, "ssd", 20)
            none = {"engine": 0, "awaited": 0, "under_way": 0, "watched": 0}
            expect(audit(server)["open_for"] == none, f"{audit(server)}")
            told = post(server, "/v1/move", hashes=keys(100, 119), to="n", kind="prefetch",
                        deadline_us=600 * 10**6)
            until(lambda: audit(server)["open_for"] == {**none, "watched": 1}, "it is watched")
            expect(told["id"] not in records(server), "it has not ended")
            done = run("trace", "--audit", "--at", server.ready["http"])
            expect("open 1: 1 came, and are watched" in done.out, done.out)
            with Client(store.address) as reader:
                reader.get(f"{NAME}:100-119", bytes=50000).all("OK")
            expect(closed(server)["in_time"] == 1, f"{audit(server)}")
            expect(audit(server)["open_for"] == none, f"{audit(server)}")
            # What an engine fetches is the engine's to tell of.
            post(server, "/v1/register", **{**INSTANCE, "name": "e1", "incarnation": 2})
            decision = post(server, "/v1/schedule", hashes=keys(100, 119), model="m",
                            not_at="e0")
            for_engine = sum(one["carrier"] == "engine" for one in decision["instructions"])
            expect(for_engine > 0 and audit(server)["open_for"]["engine"] == for_engine,
                   f"{decision} {audit(server)}")
            post(server, "/v1/done", decision=decision["decision"], stage="ended")
            closed(server)


@case("blocks are copied, brought and moved from node to node, as somebody says")
def _():
    with Store(nodes=2) as store, conductor(store.directory.address) as server, \
            store.client() as one:
        ready(server, 2)
        post(server, "/v1/register", **INSTANCE, name="e0")
        group = {"group": 7}  # All on one node.
        one.put(f"{NAME}:100-199", bytes=9000, **group).all("OK")
        until(lambda: holds(server, 100, 199), "they are known of", PATIENCE_S)
        source, = holds(server, 100, 199)
        to = "n1" if source == "n0" else "n0"
        record = moved(server, 100, 149, to, kind="replicate", **{"class": "background"})
        expect(record["outcome"] == "in_time" and record["kind"] == "replicate" and
               record["bytes"] == 50 * 9000 and record["tier"] == "dram", f"{record}")
        until(lambda: holds(server, 100, 149) == {source, to}, "there are copies", PATIENCE_S)
        expect(moved(server, 100, 149, to)["outcome"] == "already_there", "again")
        record = moved(server, 150, 199, to, kind="migrate")
        expect(record["outcome"] == "in_time" and record["bytes"] >= 50 * 9000, f"{record}")
        until(lambda: holds(server, 150, 199) == {to}, "they have left", PATIENCE_S)
        one.get(f"{NAME}:100-199", bytes=9000).all("OK")
        expect(moved(server, 500, 510, to)["outcome"] == "source_gone", "they are nowhere")
        closed(server)
        for wrong in ({"kind": "fetch"}, {"kind": "stream"}, {"kind": 1}, {"to": "nobody"},
                      {"hashes": []}, {"hashes": ["x"]}, {"parts": 256}, {"deadline_us": -1}):
            body = {"kind": "prefetch", "to": to, "hashes": keys(100, 101), **wrong}
            code, found = call(server, "POST", "/v1/move", body)
            expect(code in (400, 404) and found["text"], f"{wrong}: {code} {found}")


@case("whatever dies, each instruction has one record, and none stays open")
def _():
    seed = int(os.environ.get("YUEBING_TEST_SEED", random.randrange(1 << 30)))
    print(f"# seed {seed}")
    chance = random.Random(seed)
    with folder() as where, Store(nodes=0) as store:
        def begin(i):
            return node(store.directory.address, "--data-dir", os.path.join(where, f"n{i}"),
                        "--node-ssd-bytes", "64m", name=f"n{i}", memory="16m").begin()
        nodes = [begin(i) for i in range(3)]
        try:
            store.wait_members(3)
            with conductor(store.directory.address) as server, store.client() as one:
                ready(server, 3)
                one.put(f"{NAME}:100-199", bytes=20000).all("OK")
                until(lambda: sum(n.metric("yuebing_node_stored_total") for n in nodes) >= 100,
                      "they are below")
                for i in range(3):
                    post(server, "/v1/register", **INSTANCE, name=f"e{i}", node=f"n{i}")
                running = []
                for turn in range(48):
                    window(0.1)
                    if turn % 12 == 6:
                        at = chance.randrange(3)
                        nodes[at].kill()
                        nodes[at] = begin(at)
                    first = chance.randrange(100, 180)
                    if turn % 2:
                        code, told = call(server, "POST", "/v1/move", {
                            "to": f"n{chance.randrange(3)}", "deadline_us": 10**6,
                            "kind": chance.choice(["prefetch", "replicate", "migrate"]),
                            "hashes": keys(first, first + 19)})
                        expect(code in (200, 404), f"{code} {told}")  # It may be away.
                        continue
                    code, told = call(server, "POST", "/v1/schedule",
                                      {"model": "m", "hashes": keys(first, first + 19)})
                    if code == 404 or not told.get("accepted"):
                        for i in range(3):  # They have not reported.
                            post(server, "/v1/register", **INSTANCE, name=f"e{i}", node=f"n{i}")
                        continue
                    running.append(told["decision"])
                    while len(running) > chance.randrange(4):
                        post(server, "/v1/done", decision=running.pop(), stage="ended",
                             failed=chance.random() < 0.2)
                for decision in running:
                    post(server, "/v1/done", decision=decision, stage="ended")
                outcomes = closed(server)
                expect(audit(server)["issued"] >= 30 // SLOWER, f"{outcomes}")
                print(f"# {outcomes}")
                until(lambda: set(one.get(f"{NAME}:100-199", bytes=20000).counted) == {"OK"},
                      "all are there, once it is known who has died and is back")
        finally:
            for each in nodes:
                each.kill()


main()
