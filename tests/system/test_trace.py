# SPDX-License-Identifier: Apache-2.0
"""`yuebing trace`: a request's life from all processes that took part, on one clock."""
import http.client
import json
import select
import subprocess

from yuebing import PROGRAM, SLOWER, Serve, case, environment, expect, folder, main, run, until

SMALL = ("--time-scale", "0.002", "--block-tokens", "64", "--block-bytes", "65536", "--pool", "128")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
BLOCKS = 15


def call(server, method, path, body=None, **headers):
    connection = http.client.HTTPConnection(server.ready["http"], timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def good(answer):
    code, value = answer
    expect(code == 200, f"{code}: {value}")
    return value


class Cluster:
    """A store, a conductor and two engines that it knows."""

    def __enter__(self):
        self.store = Serve("--memory", "64m", "--http", "127.0.0.1:0", command="serve").begin()
        there = ("--directory", self.store.address)
        self.conductor = Serve("--http", "127.0.0.1:0", "--block-tokens", "64", *there,
                               command="conductor").begin()
        url = "http://" + self.conductor.ready["http"]
        self.engines = [Serve("--http-listen", "127.0.0.1:0", *there, *SMALL, "--name", name,
                              "--conductor", url, command="engine").begin()
                        for name in ("one", "two")]
        until(lambda: len([p for p in call(self.conductor, "GET", "/v1/instances")[1].get(
            "instances", ()) if p["kind"] == "instance"]) == 2, "both engines are known", 60)
        return self

    def __exit__(self, *failure):
        for server in (*self.engines, self.conductor, self.store):
            server.stop()

    @property
    def at(self):
        return ",".join(s.ready["http"] for s in (self.conductor, self.store))

    def settled(self):
        until(lambda: all(call(e, "GET", "/v1/engine")[1]["stores"] == 0 for e in self.engines),
              "what was computed is stored", 60)

    def reuse(self):
        """Have one engine compute a prompt, and the other one load it. Return the decision."""
        tokens = list(range(1000))
        good(call(self.engines[0], "POST", "/v1/completions",
                  {"prompt": tokens, "max_tokens": 2}))
        self.settled()
        name = self.store.ready["nodes"][0]["name"]
        question = {"model": "llama-3-70b", "tokens": tokens}
        until(lambda: any(p["name"] == name and p["dram"] == BLOCKS for p in good(call(
            self.conductor, "POST", "/v1/query", question))["places"]), "the blocks are known", 60)
        decision = good(call(self.conductor, "POST", "/v1/schedule", {**question, "trace": TRACE}))
        expect(decision["traceparent"].split("-")[1] == TRACE, f"{decision}")
        good(call(self.engines[1], "POST", "/v1/completions",
                  {"prompt": tokens, "max_tokens": 2, "decision": decision["decision"],
                   "instructions": [{"id": 7, "kind": "fetch", "first": 0, "count": BLOCKS,
                                     "deadline_us": 30000000}], "decided_us": 100},
                  traceparent=decision["traceparent"]))
        self.settled()
        return decision


@case("a request is one tree over conductor, engine and node; each order's life is in it")
def _():
    with Cluster() as cluster, folder() as path:
        decision = cluster.reuse()
        until(lambda: len([s for s in good(call(cluster.conductor, "GET", "/v1/spans"))["spans"]
                           if s["kind"] == "done" and s["trace"] == TRACE]) == 2,
              "the engine has told its conductor", 60)
        done = run("trace", str(decision["decision"]), "--at", cluster.at, "--json", "--perfetto",
                   path + "/out.json")
        expect(done.code == 0, f"{done.code} {done.err}")
        found = json.loads(done.out)
        expect(found["trace"] == TRACE, f"{found['trace']}")
        kinds = {}
        for number, span in enumerate(found["spans"]):
            expect(min(span["took_ns"], span["waited_ns"], span["at_ns"]) >= 0, f"{span}")
            kinds.setdefault(span["kind"], []).append((number, span))
        decide, request, load = (kinds[k][0][1] for k in ("decide", "request", "load"))
        expect(decide["depth"] == 0 and request["depth"] == 1 and load["depth"] == 2,
               f"{decide} {request} {load}")
        names = [p["kind"] for p in found["processes"]]
        expect([names[s["process"]] for s in (decide, request)] == ["conductor", "engine"], names)
        expect([(s["parent"], names[s["process"]]) for _, s in kinds["done"]] ==
               [(request["span"], "conductor")] * 2, f"{kinds['done']}")
        for number, span in kinds["serve"]:
            before = [s for s in found["spans"][:number] if s["span"] == span["parent"]]
            expect(before and before[0]["kind"] == "call" and
                   before[0]["at_ns"] <= span["at_ns"], f"{span}")
            expect(names[span["process"]] == "serve", f"{span}")
        expect({s["what"] for _, s in kinds["call"]} >= {"call lookup", "call pin"},
               f"{kinds['call']}")
        order, = found["instructions"]
        expect(order["id"] == 7 and order["tier"] == "dram" and order["outcome"] == "OK" and
               order["decided_us"] <= order["queued_us"] <= order["started_us"] <=
               order["finished_us"], f"{order}")
        with open(path + "/out.json", encoding="utf-8") as lines:
            events = json.load(lines)["traceEvents"]
        drawn = [e for e in events if e["ph"] == "X"]
        expect(len(drawn) == len(found["spans"]), f"{len(drawn)}")
        expect({e["args"]["name"] for e in events if e["ph"] == "M"} >=
               {"conductor", "engine two"}, f"{events[:9]}")
        for lane in {(e["pid"], e["tid"]) for e in drawn}:  # They nest, or follow each other.
            open_ends = []
            for event in [e for e in drawn if (e["pid"], e["tid"]) == lane]:
                while open_ends and open_ends[-1] <= event["ts"] + 1e-3:
                    open_ends.pop()
                end = event["ts"] + event["dur"]
                expect(not open_ends or end <= open_ends[-1] + 1e-3, f"{lane} {event}")
                open_ends.append(end)
        text = run("trace", TRACE, "--at", cluster.at)
        expect(text.code == 0 and "instruction 7: decided" in text.out and
               "from dram: OK" in text.out, f"{text.out} {text.err}")


@case("the slowest requests of all engines, the slowest first; who is asked for nonsense says so")
def _():
    with Cluster() as cluster:
        cluster.reuse()
        done = run("trace", "--slowest", "5", "--at", cluster.conductor.ready["http"], "--json")
        expect(done.code == 0, f"{done.err}")
        slowest = json.loads(done.out)["slowest"]
        times = [s["took_ns"] for s in slowest]
        expect({s["kind"] for s in slowest} == {"request"}, f"{slowest}")
        expect(len(times) == 2 and times == sorted(times, reverse=True), f"{slowest}")
        with folder() as where:
            path = f"{where}/slow.json"
            done = run("trace", "--slowest", "1", "--at", cluster.conductor.ready["http"],
                       "--perfetto", path)
            expect(done.code == 0, f"{done.err}")
            with open(path, encoding="utf-8") as file:
                drawn = json.load(file)["traceEvents"]
            expect(len(drawn) > 3, f"all of its life: {drawn}")
        for words, text in ((("0" * 31 + "1",), "nobody remembers"),
                            (("99999",), "nobody remembers"), (("no-such",), "is no request")):
            done = run("trace", *words, "--at", cluster.at)
            expect(done.code == 1 and text in done.err, f"{words}: {done.code} {done.err}")
        done = run("trace", TRACE, "--at", "127.0.0.1:1")
        expect(done.code == 1 and "127.0.0.1:1" in done.err, f"{done.code} {done.err}")
        done = run("trace", TRACE, "--at", ",")
        expect(done.code == 2 and "--at" in done.err, f"{done.code} {done.err}")


@case("what came to a conductor is a trace that the simulator reads: times, lengths, hashes")
def _():
    with folder() as path:
        log = path + "/log"
        with Serve("--http", "127.0.0.1:0", "--block-tokens", "64", "--standalone",
                   "--decision-log", log, command="conductor") as server:
            good(call(server, "POST", "/v1/register",
                      {"name": "p0", "model": "m", "roles": "both", "incarnation": 1,
                       "kv_bytes": 327680, "layers": 80, "prefill_token_ns": 108300}))
            for length, end in ((640, 77), (1000, 5), (100, 0)):
                decision = good(call(server, "POST", "/v1/schedule",
                                     {"model": "m", "tokens": list(range(length)),
                                      "output_tokens": 9}))
                if end:
                    good(call(server, "POST", "/v1/done",
                              {"decision": decision["decision"], "stage": "ended",
                               "output_tokens": end}))
        done = run("trace", "record", log)
        expect(done.code == 0 and "3 requests, blocks of 64 tokens" in done.err,
               f"{done.code} {done.err}")
        rows = [json.loads(line) for line in done.out.splitlines()]
        expect([r["input_length"] for r in rows] == [640, 1000, 100], f"{rows}")
        expect([r["output_length"] for r in rows] == [77, 5, 9], f"{rows}")
        expect([len(r["hash_ids"]) for r in rows] == [10, 16, 2], f"{rows}")
        expect(rows[0]["hash_ids"] == rows[1]["hash_ids"][:10], "the same blocks")
        expect(rows[1]["hash_ids"][-1] != rows[2]["hash_ids"][-1], "of their own")
        with open(path + "/trace.jsonl", "w", encoding="ascii") as out:
            out.write(done.out)
        shown = run("trace", "show", path + "/trace.jsonl", "--block-tokens", "64", "--json")
        expect(shown.code == 0 and json.loads(shown.out)["requests"] == 3,
               f"{shown.code} {shown.err}")
        done = run("trace", "record", path + "/trace.jsonl")
        expect(done.code == 1 and "no log of decisions" in done.err, f"{done.code} {done.err}")


@case("a log that still grows is followed: each request once it has ended, in the order of arrival")
def _():
    with folder() as path:
        log = path + "/log"
        with Serve("--http", "127.0.0.1:0", "--block-tokens", "64", "--standalone",
                   "--decision-log", log, "--conductor-expire-ms", "600000",
                   command="conductor") as server, \
                subprocess.Popen([PROGRAM, "trace", "record", log, "--follow"], env=environment(),
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                 text=True) as follower:
            try:
                good(call(server, "POST", "/v1/register",
                          {"name": "p0", "model": "m", "roles": "both", "incarnation": 1,
                           "kv_bytes": 327680, "layers": 80, "prefill_token_ns": 108300}))

                def begin(length):
                    return good(call(server, "POST", "/v1/schedule",
                                     {"model": "m", "tokens": list(range(length)),
                                      "output_tokens": 9}))["decision"]

                def end(decision, tokens):
                    good(call(server, "POST", "/v1/done", {"decision": decision, "stage": "ended",
                                                           "output_tokens": tokens}))

                def row():
                    return json.loads(follower.stdout.readline())
                first, second = begin(640), begin(1000)
                end(second, 5)
                early = select.select([follower.stdout], [], [], 3 * SLOWER)[0]
                expect(early == [], "it has to wait for the first")
                end(first, 77)
                rows = [row(), row()]
                expect([(r["input_length"], r["output_length"]) for r in rows] ==
                       [(640, 77), (1000, 5)], f"{rows}")
                end(begin(100), 3)
                rows.append(row())
                expect(rows[2]["output_length"] == 3 and rows[2]["timestamp"] >= 0, f"{rows}")
                expect(follower.poll() is None, "it goes on")
            finally:
                follower.kill()
        whole = run("trace", "record", log)
        expect([json.loads(line) for line in whole.out.splitlines()] == rows, "the same in the end")


@case("yuebing top shows what processes do, by the second; one that does not answer is named")
def _():
    with Cluster() as cluster:
        cluster.reuse()
        at = cluster.at + ",127.0.0.1:1"
        done = run("top", "--once", "--json", "--interval", "100", "--at", at)
        expect(done.code == 0, f"{done.code} {done.err}")
        rows = {r["name"] or r["kind"]: r for r in json.loads(done.out)["processes"]}
        expect(rows["two"]["miss"] == 0.04 and rows["one"]["miss"] == 1,
               f"{rows}")
        expect(rows["one"]["ttft_p50_ms"] > 0 and rows["one"]["requests"] == 0 and
               rows["one"]["ended_s"] == 0, f"{rows}")
        expect(rows["conductor"]["up"] and "puts_s" in
               rows[cluster.store.ready["nodes"][0]["name"]], f"{rows}")
        expect(rows[""]["address"] == "127.0.0.1:1" and not rows[""]["up"], f"{rows}")
        done = run("top", "--once", "--interval", "100", "--at", at)
        expect(done.code == 0 and "engine two" in done.out and
               "no answer: 127.0.0.1:1" in done.out, f"{done.out}")
        expect(run("top", "--interval", "1").code == 2, "an interval that is none")


if __name__ == "__main__":
    main()
