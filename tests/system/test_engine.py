# SPDX-License-Identifier: Apache-2.0
"""`yuebing engine`: requests over HTTP, KV through the store and from engine to engine, each byte
compared; engines that die, askers that go away or ask nonsense."""
import contextlib
import http.client
import http.server
import json
import signal
import threading

from engine_process import ask, call, engine, numbers, prompt, settled
from yuebing import Failed, Serve, case, expect, main, run, until


@case("what one engine computes another one loads, and both answer the same")
def _():
    with Serve("--memory", "64m", command="serve") as store, engine(store.address) as first, \
            engine(store.address) as second, engine(None) as alone:
        tokens = prompt(1, 1000)
        answers = [ask(first, tokens)]
        settled(first)
        answers += [ask(second, tokens), ask(alone, tokens)]
        expect(answers[0]["tokens"] == answers[1]["tokens"] == answers[2]["tokens"], f"{answers}")
        expect(answers[0]["yuebing"]["loaded_tokens"] == 0, f"{answers[0]}")
        expect(answers[1]["yuebing"]["loaded_tokens"] == 15 * 64, f"{answers[1]}")
        expect(answers[1]["yuebing"]["tier_bytes"]["dram"] == 15 * 65536, f"{answers[1]}")
        expect(answers[1]["usage"] == {"prompt_tokens": 1000, "completion_tokens": 8,
                                       "total_tokens": 1008}, f"{answers[1]}")
        # The next turn of the conversation, at the other engine.
        settled(second)
        longer = tokens + answers[0]["tokens"] + prompt(2, 200)
        again = ask(second, longer)
        expect(again["yuebing"]["device_tokens"] == 15 * 64, f"{again}")
        told = numbers(second)
        expect(told["verified_bytes"] == 15 * 65536 and told["wrong_bytes"] == 0, f"{told}")


@case("what an engine computes lies at its node, where a conductor finds it as a run")
def _():
    with Serve("--http", "127.0.0.1:0", command="directory") as directory:
        place = ("--directory", directory.address, "--memory", "64m", "--http", "127.0.0.1:0")
        with Serve(*place, "--name", "near", command="node") as near, \
                Serve(*place, "--name", "far", command="node") as far, \
                engine(directory.address, "--node", "near") as server:
            ask(server, prompt(6, 2000))
            settled(server)
            held = [puts_at(node) for node in (near, far)]
            expect(held == [4 * 31, 0], f"each block is four values: {held}")
        # The node is gone: whoever is there takes them.
        with Serve(*place, "--name", "far", command="node") as far, \
                engine(directory.address, "--node", "near") as server:
            ask(server, prompt(7, 2000))
            settled(server)
            expect(puts_at(far) == 4 * 31, f"{puts_at(far)}")


def puts_at(node):
    return sum(row["value"] for row in shown(node, "/v1/stats")["stats"]
               if row["name"] == "yuebing_node_puts_total" and row["labels"]["status"] == "OK")


def shown(server, path):
    code, body = call(server, "GET", path)
    expect(code == 200, f"{path}: {code} {body[:200]}")
    return json.loads(body)


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"


@case("a request is a tree of spans in all processes, under the caller's trace")
def _():
    with Serve("--memory", "64m", "--http", "127.0.0.1:0", command="serve") as store, \
            engine(store.address) as first, engine(store.address) as second:
        ask(first, prompt(3, 1000))
        settled(first)
        code, body = call(second, "POST", "/v1/completions",
                          json.dumps({"prompt": prompt(3, 1000), "max_tokens": 4,
                                      "decision": 17}),
                          {"traceparent": f"00-{TRACE}-{CALLER}-01"})
        expect(code == 200, f"{body}")
        settled(second)
        spans = shown(second, f"/v1/spans?trace={TRACE}")["spans"]
        kinds = {}
        for span in spans:
            kinds.setdefault(span["kind"], []).append(span)
            expect(span["trace"] == TRACE and span["start_ns"] <= span["end_ns"], f"{span}")
        request, load, prefill = (kinds[k][0] for k in ("request", "load", "prefill"))
        expect(request["parent"] == CALLER and request["number"] == 17, f"{request}")
        expect(load["parent"] == prefill["parent"] == request["span"], f"{load} {prefill}")
        expect(load["bytes"] == request["bytes"] == 15 * 65536, f"{load} {request}")
        expect(load["tier"] == "dram" and load["start_ns"] <= load["began_ns"] <= load["end_ns"],
               f"{load}")
        calls = [c for c in kinds["call"] if c["parent"] == load["span"]]
        expect(len(calls) >= 2, f"a lookup and a get: {kinds['call']}")
        by_number = shown(second, "/v1/spans?number=17")["spans"]
        expect(len(by_number) == len(spans), f"{len(by_number)} {len(spans)}")
        slowest = shown(second, "/v1/spans?slowest=5")["spans"]
        expect([s["span"] for s in slowest] == [request["span"]], f"{slowest}")
        served = [s for s in shown(store, f"/v1/spans?trace={TRACE}")["spans"]
                  if s["kind"] == "serve"]
        expect({c["span"] for c in calls} <= {s["parent"] for s in served},
               f"what was asked is what was served: {calls} {served}")
        # One without a trace of its caller's gets one of its own.
        ask(second, prompt(4, 100))
        own = [s for s in shown(second, "/v1/spans")["spans"]
               if s["kind"] == "request" and s["trace"] != TRACE]
        expect(len(own) == 1 and "parent" not in own[0], f"{own}")


@case("an engine shows what its requests were like: times, sources that sum to all, failures")
def _():
    with Serve("--memory", "64m", command="serve") as store, engine(store.address) as first, \
            engine(store.address) as second:
        ask(first, prompt(5, 1000))
        settled(first)
        ask(second, prompt(5, 1000))
        rows = {(row["name"], *row["labels"].values()): row
                for row in shown(second, "/v1/stats")["stats"]}
        expect(rows["yuebing_engine_ttft_seconds",]["count"] == 1, f"{rows.keys()}")
        expect(rows["yuebing_engine_outcomes_total", "OK"]["value"] == 1, "an outcome")
        expect(rows["yuebing_engine_loaded_bytes_total", "dram"]["value"] == 15 * 65536, "bytes")
        expect(rows["yuebing_engine_load_time_seconds",]["count"] == 1, "a load")
        shares = {key[1]: row["value"] for key, row in rows.items()
                  if key[0] == "yuebing_engine_hit_ratio"}
        expect(sum(shares.values()) == 1000000 and shares["dram"] == 960000
               and shares["miss"] == 40000, f"{shares}")
        code, text = call(second, "GET", "/metrics")
        expect(code == 200 and b'yuebing_engine_hit_ratio{tier="dram"} 0.96' in text, f"{text}")


@case("a prompt that one engine computed is answered by another, out of the first one's memory")
def _():
    with engine(None, "--roles", "prefill") as prefill, \
            engine(None, "--roles", "decode") as decode, engine(None) as alone:
        for length in (1, 64, 999):
            tokens = prompt(10 + length, length)
            kept = ask(prefill, tokens, kv_transfer_params={"do_remote_decode": True})
            expect(len(kept["tokens"]) == 1, f"{kept}")
            answer = ask(decode, tokens, 20, kv_transfer_params=kept["kv_transfer_params"])
            expect(answer["yuebing"]["pulled_tokens"] == length, f"{answer}")
            expect(answer["tokens"] == ask(alone, tokens, 20)["tokens"], f"{answer}")
            until(lambda: numbers(prefill)["held"] == 0, "it is let go")


@case("a stream brings the answer in pieces, and says how it ended")
def _():
    with engine(None) as server:
        whole = ask(server, "What is a moon cake?", 12)
        code, body = call(server, "POST", "/v1/completions", json.dumps(
            {"prompt": "What is a moon cake?", "max_tokens": 12, "stream": True}))
        expect(code == 200, f"{code}")
        events = [event for event in body.decode().split("\n\n") if event.startswith("data: ")]
        expect(events[-1] == "data: [DONE]", f"{events[-1]}")
        pieces = [json.loads(event[6:]) for event in events[:-1]]
        tokens = [token for piece in pieces for token in piece["choices"][0]["token_ids"]]
        expect(tokens == whole["tokens"], f"{tokens} {whole['tokens']}")
        expect(pieces[-1]["choices"][0]["finish_reason"] == "length", f"{pieces[-1]}")
        expect(pieces[-1]["usage"]["completion_tokens"] == 12, f"{pieces[-1]}")


@case("nonsense is refused in words, and costs nobody anything")
def _():
    with engine(None) as server:
        good = {"prompt": [1, 2, 3], "max_tokens": 2}
        nonsense = [
            b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"prompt": 5}', b'{"prompt": []}',
            b'{"prompt": [1, "2"]}', b'{"prompt": [-1]}', b'{"prompt": [4294967296]}',
            json.dumps({**good, "n": 2}), json.dumps({**good, "n": 0}),
            json.dumps({**good, "stream": "yes"}), json.dumps({**good, "stream": 1}),
            json.dumps({**good, "max_tokens": 0}), json.dumps({**good, "max_tokens": -1}),
            json.dumps({**good, "max_tokens": "9"}), json.dumps({**good, "max_tokens": 10 ** 12}),
            json.dumps({**good, "instructions": 5}), json.dumps({**good, "instructions": [{}]}),
            json.dumps({**good, "instructions": [], "decided_us": -1}),
            json.dumps({**good, "class": 3}), json.dumps({**good, "conductor": 16}),
            json.dumps({**good, "kv_transfer_params": {}}),
            json.dumps({**good, "kv_transfer_params": {
                "address": "127.0.0.1:1", "ticket": "zz", "addresses": ["0"]}}),
            json.dumps({**good, "kv_transfer_params": {
                "address": "127.0.0.1:1", "ticket": "1", "addresses": ["0", "0", "0"]}}),
            json.dumps({"prompt": "x" * 100000}),  # Larger than the engine's memory.
        ]
        for body in nonsense:
            code, text = call(server, "POST", "/v1/completions", body)
            expect(code == 400 and json.loads(text)["error"]["message"],
                   f"{body[:60]}: {code} {text}")
        expect(call(server, "GET", "/v1/completions")[0] == 405, "GET")
        expect(call(server, "POST", "/v1/completions", json.dumps(good),
                    {"Origin": "http://evil.example"})[0] == 403, "a page in a browser")
        expect(call(server, "GET", "/v1/nothing")[0] == 404, "a path")
        with_length = {"Content-Length": str(40 << 20)}
        try:
            code, _ = call(server, "POST", "/v1/completions", b"x" * (40 << 20), with_length)
            expect(code == 413, f"a huge body: {code}")
        except OSError:
            pass  # It was cut off before all of it was sent.
        told = numbers(server)
        expect(told["asked"] == told["ended"] == 0, f"{told}")
        expect(len(ask(server, [1, 2, 3], 2)["tokens"]) == 2, "and it answers still")
        code, text = call(server, "GET", "/metrics")
        lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
        expect(code == 200 and "yuebing_engine_requests_total 1" in lines, f"{lines}")


@case("more memory than there is is refused with what to do")
def _():
    done = run("engine", "--http-listen", "127.0.0.1:0", "--no-store", "--pool", "400000",
               "--block-bytes", str(64 << 20))
    expect(done.code != 0 and "ask for fewer" in done.err and str(64 << 20) in done.err, done.err)


@case("an asker that goes away takes its request with it")
def _():
    with engine(None, "--time-scale", "1") as server:
        connection = http.client.HTTPConnection(server.ready["http"], timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": prompt(3, 100), "max_tokens": 4000, "stream": True}))
        answer = connection.getresponse()
        expect(answer.read(10), "something came")
        until(lambda: numbers(server)["running"] == 1, "it runs")
        answer.close()
        connection.close()
        until(lambda: numbers(server)["running"] == 0, "it was given up")
        told = numbers(server)
        expect(told["ended"] == 1 and told["slots_used"] == 0, f"{told}")


@case("an engine that dies in the middle leaves the others and the store as they are")
def _():
    with Serve("--memory", "64m", command="serve") as store, engine(store.address) as second:
        first = engine(store.address, "--time-scale", "0.05").begin()
        tokens = prompt(4, 4000)
        connection = http.client.HTTPConnection(first.ready["http"], timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": tokens, "max_tokens": 100}))
        until(lambda: numbers(first)["stored_bytes"] > 0, "a part of it is stored")
        first.process.send_signal(signal.SIGKILL)
        connection.close()
        first.kill()
        answer = ask(second, tokens)
        told = numbers(second)
        expect(told["wrong_bytes"] == 0 and len(answer["tokens"]) == 8, f"{told}")
        # And one that dies while another wants to go on with what it holds.
        third = engine(store.address).begin()
        kept = ask(third, prompt(5, 500), kv_transfer_params={"do_remote_decode": True})
        third.kill()
        answer = ask(second, prompt(5, 500), 4, kv_transfer_params=kept["kv_transfer_params"])
        expect(len(answer["tokens"]) == 4 and answer["yuebing"]["pulled_tokens"] == 0, f"{answer}")


def get(server, path):
    return json.loads(call(server, "GET", path)[1])


def decide(conductor, tokens, **more):
    code, body = call(conductor, "POST", "/v1/schedule", json.dumps(
        {"tokens": tokens, "model": "llama-3-70b", "output_tokens": 8, **more}))
    expect(code == 200, f"{code}: {body}")
    return json.loads(body)


def known(conductor, tokens, name, tier, blocks):
    """Await that the conductor knows so many blocks of the prompt there."""
    def look():
        found = json.loads(call(conductor, "POST", "/v1/query", json.dumps(
            {"tokens": tokens, "model": "llama-3-70b"}))[1])
        return any(place["name"] == name and place[tier] >= blocks for place in found["places"])
    until(look, f"{blocks} blocks in {tier} of {name} are known of")


def instances(conductor):
    return {place["name"] for place in get(conductor, "/v1/instances").get("instances", ())}


def conduct(engines, decision, tokens, **more):
    """Send a request where the conductor says."""
    server = next(e for e in engines if e.ready["name"] == decision["prefill"])
    return ask(server, tokens, decision=decision["decision"],
               reuse_tokens=decision["reuse_tokens"], instructions=decision["instructions"],
               **more)


@case("a conductor sends requests where their KV is, learns of it again after a restart, and "
      "hears how they ended")
def _():
    with Serve("--memory", "64m", command="serve") as store:
        words = ("--directory", store.address, "--block-tokens", "64")
        conductor = Serve("--http", "127.0.0.1:0", *words, command="conductor").begin()
        url = "http://" + conductor.ready["http"]
        with engine(store.address, "--name", "one", "--conductor", url) as one, \
                engine(store.address, "--name", "two", "--conductor", url) as two:
            engines = (one, two)
            until(lambda: {"one", "two"} <= instances(conductor), "both are known")
            tokens = prompt(6, 2000)
            first = decide(conductor, tokens)
            expect(first["reuse_tokens"] == 0, f"{first}")
            answer = conduct(engines, first, tokens)
            here = first["prefill"]
            known(conductor, tokens, here, "device", 31)
            again = decide(conductor, tokens)
            expect(again["prefill"] == here and again["hit_blocks"]["device"] == 31, f"{again}")
            reused = conduct(engines, again, tokens)
            expect(reused["yuebing"]["device_tokens"] == 31 * 64, f"{reused}")
            expect(reused["tokens"] == answer["tokens"], f"{reused}")
            # Not there: the other one loads what it is told to, from the store.
            known(conductor, tokens, store.ready["nodes"][0]["name"], "dram", 31)
            other = decide(conductor, tokens, not_at=here)
            expect(other["prefill"] != here and other["reuse_tokens"] > 0, f"{other}")
            loaded = conduct(engines, other, tokens)
            expect(loaded["yuebing"]["loaded_tokens"] == other["reuse_tokens"], f"{loaded}")
            expect(loaded["tokens"] == answer["tokens"], f"{loaded}")
            until(lambda: get(conductor, "/v1/conductor")["requests"] == 0, "all have ended")
            expect([move["kind"] for move in other["instructions"]] == ["fetch"], f"{other}")
            audit = get(conductor, "/v1/audit")
            expect(audit["issued"] == 1 and audit["open"] == 0, f"{audit}")
            expect(audit["outcomes"]["in_time"] + audit["outcomes"]["late"] == 1, f"{audit}")
            # Another life of the conductor knows nothing, and is told.
            address = conductor.ready["http"]
            expect(conductor.stop() == 0, "it ends")
            with Serve("--http", address, *words, command="conductor") as reborn:
                until(lambda: {"one", "two"} <= instances(reborn), "both came again")
                known(reborn, tokens, here, "device", 31)
                last = decide(reborn, prompt(7, 100))
                conduct(engines, last, prompt(7, 100))


@case("several conductors know of an engine, and each hears of the requests that it sent")
def _():
    with contextlib.ExitStack() as all_of_them:
        conductors = [all_of_them.enter_context(Serve(
            "--http", "127.0.0.1:0", "--block-tokens", "64", "--standalone", "--conductor-number",
            str(number), command="conductor")) for number in range(2)]
        urls = ",".join("http://" + one.ready["http"] for one in conductors)
        server = all_of_them.enter_context(engine(None, "--name", "e0", "--conductor", urls))

        def about(number):
            return json.loads(call(conductors[number], "GET", "/v1/conductor")[1])
        until(lambda: all(about(one)["instances"] == 1 for one in range(2)), "both know of it")
        decided = []
        for one in conductors:  # Both call it decision number 1.
            code, body = call(one, "POST", "/v1/schedule", json.dumps(
                {"tokens": prompt(1, 200), "model": "llama-3-70b"}))
            expect(code == 200, f"{code}: {body}")
            decided.append(json.loads(body)["decision"])
        expect(decided[0] == decided[1], f"{decided}")
        ask(server, prompt(1, 200), decision=decided[1], conductor=1)
        until(lambda: about(1)["requests"] == 0, "who sent it has heard")
        expect(about(0)["requests"] == 1, "and nobody else")
        ask(server, prompt(1, 200), decision=decided[0], conductor=0)
        until(lambda: about(0)["requests"] == 0, "nor has the other one been forgotten")


class Listener(http.server.BaseHTTPRequestHandler):
    """Hears whatever a conductor is told; its server keeps that, and drops the first words of what
    is done, as many as it is told, with their links."""
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/done" and self.server.drops > 0:
            self.server.drops -= 1
            self.close_connection = True
            return
        self.server.heard.append((self.path, said))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def listening(drops=0):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        server.heard, server.drops = [], drops
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def heard(conductor, path):
    return [said for to, said in list(conductor.heard) if to == path]


def slow_engine(*words):
    """Some 30 ms a token."""
    return Serve("--http-listen", "127.0.0.1:0", "--no-store", "--block-tokens", "64",
                 "--block-bytes", "65536", "--pool", "128", *words, command="engine")


@case("a conductor that was not heard to answer is told again that a request has ended")
def _():
    with listening(drops=3) as conductor:  # A client's second try on a new link is dropped, too.
        with engine(None, "--name", "e0", "--conductor", conductor.url) as server:
            ask(server, prompt(1, 200), decision=5)
            until(lambda: {(5, "first_token"), (5, "ended")}
                  <= {(said["decision"], said["stage"]) for said in heard(conductor, "/v1/done")},
                  "both words have come", 60)
            expect(conductor.drops == 0, f"{conductor.drops}")


@case("a request that one conductor sent is told to the others at once")
def _():
    def reports(conductor):
        return [said["queued"] + said["running"] for said in heard(conductor, "/v1/report")]
    with listening() as first, listening() as second, \
            slow_engine("--conductor", f"{first.url},{second.url}",
                        "--report-ms", "60000") as server:
        until(lambda: reports(first) and reports(second), "both have heard of it")
        asking = threading.Thread(
            target=ask, args=(server, prompt(1, 200), 64), kwargs={"decision": 5})
        asking.start()
        until(lambda: any(reports(second)), "the second has heard of the request", 30)
        asking.join()


@case("an engine that takes turns tells a conductor how far its answers are ahead of their pace")
def _():
    for mode, tells in (("coupled", False), ("time-sliced", True)):
        with listening() as conductor, \
                slow_engine("--mode", mode, "--conductor", conductor.url) as server:
            def reported():
                ask(server, prompt(1, 200), 32)  # A second.
                return any(said["running"] > 0 for said in heard(conductor, "/v1/report"))
            until(reported, "there was a report meanwhile", 60)
            told = [(said["running"], said["saved_us"])
                    for said in heard(conductor, "/v1/report")]
        expect(all(saved == 0 for running, saved in told if running == 0), f"{told}")
        expect(all((saved != 0) == tells for running, saved in told if running > 0), f"{told}")


if __name__ == "__main__":
    main()
