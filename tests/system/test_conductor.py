# SPDX-License-Identifier: Apache-2.0
"""A conductor as a real process: its calls, bad input of every kind, what it learns of a store, and
its log of decisions run again."""
import http.client
import json
import struct
import subprocess

from relay import Relay
from yuebing import (DEADLINE_S, PROGRAM, Serve, case, environment, expect, folder, main,
                     new_secret, run, split, until)

INSTANCE = {"name": "p0", "model": "m", "roles": "both", "incarnation": 1, "kv_bytes": 327680,
            "layers": 80, "prefill_token_ns": 108300, "prefill_pair_ns": 0.768,
            "step_base_ns": 26800000, "load_rate": 10**11, "in_rate": 25 * 10**9,
            "out_rate": 25 * 10**9, "object_rate": 2 * 10**9, "ssd_rate": 7 * 10**9}
BINARY = "application/x-yuebing-schedule"
BLOCK = 16


def conductor(*words, standalone=True):
    """Who is registered once is there for as long as a case takes."""
    more = ("--standalone",) if standalone else ()
    return Serve("--http", "127.0.0.1:0", "--block-tokens", str(BLOCK), "--conductor-expire-ms",
                 "600000", *more, *words, command="conductor")


def ask(server, method, path, body=None, **headers):
    host, port = split(server.ready["http"])
    connection = http.client.HTTPConnection(host, port, timeout=DEADLINE_S)
    data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
    connection.request(method, path, body=data, headers=headers)
    answer = connection.getresponse()
    found = answer.read()
    connection.close()
    if answer.getheader("Content-Type") == "application/json":
        found = json.loads(found)
    return answer.status, found, answer


def post(server, path, body, **headers):
    code, found, _ = ask(server, "POST", path, body, **headers)
    return code, found


def register(server, **other):
    code, found = post(server, "/v1/register", {**INSTANCE, **other})
    expect(code == 200, str(found))


def question(tokens=(), hashes=(), model=b"m"):
    """The binary form, written here by other code than the conductor's."""
    fixed = struct.pack("<IHBBQQQQII16sQIHHHHIII", 0x31534259, 1, 0, 0, 5, 0, 0, 0, 0, 0,
                        bytes(16), 0, 0, 0, len(model), 0, 0, 4 * len(tokens), len(hashes), 0)
    return fixed + model + struct.pack(f"<{len(tokens)}I", *tokens) + b"".join(hashes)


@case("a request is decided, ends, and its instructions are accounted for")
def _():
    with conductor() as server:
        for name in ("p0", "p1"):  # Without a network between them there is one place for it.
            register(server, name=name, in_rate=0, out_rate=0)
        keys = [f"{i:032x}" for i in range(1, 9)]
        code, found = post(server, "/v1/report", {
            "name": "p1", "incarnation": 1, "sequence": 1,
            "blocks": [{"key": k} for k in keys[:6]]})
        expect(code == 200, str(found))
        code, found = post(server, "/v1/query", {"hashes": keys})
        expect(code == 200 and found["places"][0]["name"] == "p1" and
               found["places"][0]["device"] == 6, str(found))
        code, found = post(server, "/v1/schedule", {"hashes": keys, "class": "throughput"})
        expect(code == 200 and found["prefill"] == "p1" and found["hit_blocks"]["device"] == 6 and
               found["reuse_tokens"] == 6 * BLOCK, str(found))
        # How far its answers are ahead of their pace is the one number that may be below 0.
        for sequence, saved, right in ((2, -5, 200), (3, 2**63 - 1, 200), (4, -2**63, 400),
                                       (5, 2**63, 400), (6, 0.5, 400)):
            code, answer = post(server, "/v1/report", {
                "name": "p1", "incarnation": 1, "sequence": sequence, "saved_us": saved})
            expect(code == right, f"{saved}: {answer}")
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        for stage in ("first_token", "ended"):
            code, _ = post(server, "/v1/done", {"decision": found["decision"], "stage": stage},
                           traceparent=f"00-{trace}-00f067aa0ba902b7-01")
            expect(code == 200, stage)
        code, _ = post(server, "/v1/done", {"decision": found["decision"], "stage": "ended"},
                       traceparent=f"00-{trace}-00f067aa0ba902b7-01")
        expect(code == 404, "it ends once")
        words = ask(server, "GET", f"/v1/spans?trace={trace}")[1]["spans"]
        expect([(w["kind"], w["parent"], w["number"]) for w in words] ==
               [("done", "00f067aa0ba902b7", found["decision"])] * 2, str(words))
        code, found, _ = ask(server, "GET", "/v1/audit")
        expect(code == 200 and found["issued"] == found["terminal"] + found["open"], str(found))
        done = run("trace", "--audit", "--json", "--at", server.ready["http"])
        expect(done.code == 0 and json.loads(done.out)["open"] == 0, done.err)
        code, found, _ = ask(server, "GET", "/v1/openapi.json")
        expect("/v1/schedule" in found["paths"], str(found)[:200])
        code, text, _ = ask(server, "GET", "/metrics")
        expect(b"yuebing_conductor_instances" in text, "metrics")


@case("the binary form is the same question, and a prompt of a million tokens fits")
def _():
    with conductor() as server:
        register(server)
        tokens = list(range(5 * BLOCK))
        code, by_json = post(server, "/v1/schedule", {"tokens": tokens, "model": "m"})
        code, answer = post(server, "/v1/schedule", question(tokens), **{"Content-Type": BINARY})
        expect(code == 200 and answer[:4] == b"YBS1" and answer[6] == 1, repr(answer[:16]))
        blocks = struct.unpack_from("<I", answer, 68)[0]
        expect(blocks == by_json["blocks"] == 5, str(blocks))
        code, answer = post(server, "/v1/schedule", question(range(1000000)),
                            **{"Content-Type": BINARY})
        expect(code == 200 and struct.unpack_from("<I", answer, 68)[0] == 1000000 // BLOCK, "1 M")
        whole = question(tokens)
        for bad in (b"", whole[:-1], whole + b"x", b"x" + whole[1:], whole[:90],
                    whole[:4] + b"\xff" + whole[5:], question(range(1048577))):
            code, found = post(server, "/v1/schedule", bad, **{"Content-Type": BINARY})
            expect(code == 400 and found["text"], f"{len(bad)}: {code}")


@case("what cannot be is refused by name, and nothing is left of it")
def _():
    with conductor() as server:
        register(server)
        for bad in ({"tokens": [1], "hashes": ["0" * 32]}, {"tokens": [-1]}, {"tokens": [2**32]},
                    {"tokens": [1], "input_tokens": 2}, {"hashes": ["0" * 31]},
                    {"tokens": [1], "class": "x"}, {"tokens": [1.5]},
                    {"tokens": [1], "ttft_slo_us": -1}, {"tokens": [1], "block_tokens": 7},
                    {"tokens": [1], "tenant": "x" * 64}, {}):
            code, found = post(server, "/v1/schedule", bad)
            expect(code == 400 and found["text"], f"{bad}: {code}")
        code, found = post(server, "/v1/schedule", {"tokens": [1]})
        expect(code == 400 and "salt" in found["text"], str(found))
        code, found = post(server, "/v1/schedule", {"tokens": [1], "model": "other"})
        expect(code == 404, str(found))
        code, found = post(server, "/v1/register", {**INSTANCE, "roles": "prefill"})
        expect(code == 400, str(found))
        code, found = post(server, "/v1/report", {"name": "p9", "sequence": 1})
        expect(code == 404 and "register" in found["text"], str(found))
        code, found, _ = ask(server, "GET", "/v1/conductor")
        expect(found["decisions"] == 0 and found["instances"] == 1, str(found))


@case("what comes too late is refused with the time to ask again")
def _():
    with conductor("--admission", "early", "--ttft", "1") as server:
        register(server)
        body = {"hashes": [f"{i:032x}" for i in range(1, 2001)]}
        code, found, answer = ask(server, "POST", "/v1/schedule", body)
        expect(code == 429 and found["reason"] == "ttft" and found["retry_after_ms"] > 0,
               str(found))
        expect(int(answer.getheader("Retry-After")) >= 1, "Retry-After")


@case("with a secret, whoever has none changes nothing")
def _():
    with folder() as path:
        secret = new_secret(path + "/secret")
        with open(secret, encoding="ascii") as lines:
            token = next(line for line in lines if line.startswith("secret ")).split()[1]
        with conductor("--secret-file", secret) as server:
            code, _ = post(server, "/v1/register", INSTANCE)
            expect(code == 403, str(code))
            code, _ = post(server, "/v1/register", INSTANCE, Authorization="Bearer " + token)
            expect(code == 200, str(code))


@case("it learns what the store's nodes hold, and its log gives the same decisions again")
def _():
    with folder() as path:
        log = path + "/log"
        with Serve("--memory", "8m", command="serve") as store:
            with conductor("--directory", store.ready["directory"], "--decision-log", log,
                           standalone=False) as server:
                until(lambda: ask(server, "GET", "/readyz")[0] == 200, "ready")
                register(server, node=store.ready["nodes"][0]["name"])
                keys = [f"block-{i:010}" for i in range(5)]
                for key in keys:
                    done = subprocess.run(
                        [PROGRAM, "put", key, "--directory", store.ready["directory"]],
                        input=b"x" * 100, capture_output=True, env=environment(), check=False)
                    expect(done.returncode == 0, done.stderr.decode())
                body = {"hashes": [key.encode().hex() for key in keys]}

                def hits():
                    return post(server, "/v1/schedule", body)[1]["hit_blocks"]["dram"]
                until(lambda: hits() == 5, "five blocks are known of")
                code, found, _ = ask(server, "GET", "/v1/conductor")
                expect(found["nodes"] == 1 and found["store_changes"] >= 5, str(found))
                expect(found["store_age_ms"] is not None, str(found))
                done = run("rm", *keys[2:], "--directory", store.ready["directory"])
                expect(done.code == 0, done.err)
                until(lambda: hits() == 2, "three are gone, and the run ends there")
        done = run("simulate", "--replay-decisions", log, "--json")
        expect(done.code == 0, done.err)
        found = json.loads(done.out)
        expect(found["decisions"] > 1 and found["differing"] == 0 and
               found["used_bytes"] == found["bytes"], str(found))


@case("S26: after news that were held up, lost with their connection or spoilt, it knows what is "
      "there and nothing else")
def _():
    with Serve("--memory", "8m", command="serve") as store, \
            Relay(store.ready["directory"]) as relay, \
            conductor("--directory", relay.address, standalone=False) as server:
        where = ("--directory", store.ready["directory"])
        until(lambda: ask(server, "GET", "/readyz")[0] == 200, "ready")
        register(server, node=store.ready["nodes"][0]["name"])
        keys = [f"block-{i:010}" for i in range(8)]

        def put(names):
            for name in names:
                done = subprocess.run([PROGRAM, "put", name, *where], input=b"x" * 100,
                                      capture_output=True, env=environment(), check=False)
                expect(done.returncode == 0, done.stderr.decode())

        def known(count, why):
            until(lambda: post(server, "/v1/schedule", {
                "hashes": [key.encode().hex() for key in keys]})[1]["hit_blocks"]["dram"] == count,
                f"{count} blocks are known of, {why}")
        put(keys)
        known(8, "all")
        relay.hold()
        expect(run("rm", *keys[6:], *where).code == 0, "two go")
        relay.release()
        known(6, "after a silence")
        for number, lose in enumerate((relay.cut, relay.spoil)):
            relay.hold()
            expect(run("rm", *keys[2:6], *where).code == 0, "four go")
            put(keys[2:4])
            lose()
            relay.release()
            known(4, "two came back while nobody told")
            put(keys[4:6])
            known(6, f"it follows again, {number}")


class Questions:
    """What a conductor asks of a directory to learn of changes: for each question for members, how
    long the questions for events that follow it may wait, in ms."""
    FRAME, HEADER, MEMBERS, EVENTS, WAIT_AT = 826688089, 96, 65, 75, 16

    def __init__(self):
        self.streams = {}

    def watch(self, link, data):
        self.streams.setdefault(link, bytearray()).extend(data)

    def turns(self):
        found = []
        for stream in list(self.streams.values()):
            turns, at, magic = [], 0, struct.pack("<I", self.FRAME)
            while (at := stream.find(magic, at)) >= 0 and len(stream) >= at + 2 * self.HEADER:
                kind, = struct.unpack_from("<H", stream, at + 6)
                if kind == self.MEMBERS:
                    turns.append([])
                elif kind == self.EVENTS and turns:
                    turns[-1] += struct.unpack_from("<I", stream, at + self.HEADER + self.WAIT_AT)
                at += self.HEADER
            found += turns if any(turns) else []
        return found


@case("how busy nodes are is asked for every fifth of a second, whatever else happens meanwhile")
def _():
    questions = Questions()
    with Serve("--memory", "8m", command="serve") as store, \
            Relay(store.ready["directory"], questions.watch) as relay, \
            conductor("--directory", relay.address, standalone=False) as server:
        until(lambda: ask(server, "GET", "/readyz")[0] == 200, "ready")
        until(lambda: len(questions.turns()) > 5, "nodes were asked for again and again")

        def interrupted():
            done = subprocess.run(
                [PROGRAM, "put", "block", "--directory", store.ready["directory"], "--replace"],
                input=b"x", capture_output=True, env=environment(), check=False)
            expect(done.returncode == 0, done.stderr.decode())
            return any(len(turn) > 1 for turn in questions.turns())
        until(interrupted, "an event came while it waited")
        for turn in questions.turns():
            expect(all(wait < 200 for wait in turn), f"no longer than they are good: {turn}")
            expect(all(later <= first for first, later in zip(turn, turn[1:])) and
                   (len(turn) < 3 or turn[-1] < turn[0]), f"no time anew: {turn}")


@case("a store that is served has its conductor in the same process")
def _():
    with Serve("--memory", "8m", "--http", "127.0.0.1:0", "--conductor", "--policy", "mooncake",
               command="serve") as server:
        until(lambda: ask(server, "GET", "/readyz")[0] == 200, "ready")
        register(server)
        code, found = post(server, "/v1/schedule", {"tokens": [1], "model": "m"})
        expect(code == 200, str(found))
        code, found, _ = ask(server, "GET", "/v1/conductor")
        expect(found["routing"] == "mooncake", str(found))
    done = run("conductor", "--standalone", "--policy", "nonsense")
    expect(done.code == 2 and "routing" in done.err, done.err)


main()
