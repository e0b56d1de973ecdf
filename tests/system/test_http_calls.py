# SPDX-License-Identifier: Apache-2.0
"""Every HTTP call of a conductor, an engine and an admin port, against bodies that are no JSON, of
other types, too long or too slow, and requests that are none: each is refused in words, changes
nothing, and holds nobody up."""
import contextlib
import http.client
import json
import socket

from yuebing import DEADLINE_S, Serve, case, expect, main, split, until

MIB = 1 << 20
SERVERS = {
    "conductor": lambda: Serve("--http", "127.0.0.1:0", "--block-tokens", "16", "--standalone",
                               command="conductor"),
    "engine": lambda: Serve("--http-listen", "127.0.0.1:0", "--no-store", "--time-scale", "0.01",
                            "--block-tokens", "64", "--block-bytes", "65536", "--pool", "128",
                            command="engine"),
    "admin": lambda: Serve("--http", "127.0.0.1:0", "--memory", "8m", command="serve"),
}
# What has no description for programs: path, method, and what types a member may have, if any.
ENGINE = {("/v1/completions", "POST"): {
    "prompt": ["array", "string"], "max_tokens": ["integer"], "stream": ["boolean"],
    "reuse_tokens": ["integer"], "class": ["integer"], "decision": ["integer"],
    "conductor": ["integer"], "instructions": ["array"]},
          ("/v1/models", "GET"): {}, ("/v1/engine", "GET"): {}, ("/metrics", "GET"): {}}
ADMIN = {(path, "GET"): {} for path in (
    "/healthz", "/readyz", "/metrics", "/v1/nodes", "/v1/config", "/v1/blocks/none", "/v1/events",
    "/v1/stats", "/v1/spans")}
VALUES = {"integer": 7, "number": 1.5, "string": "x", "boolean": True, "array": [1], "object": {},
          "null": None}
NO_JSON = (b"", b"{", b"}", b"[]", b"1", b'"x"', b"null", b"true", b"\xff\xfe", b"\x00",
           b'{"name":"a","name":"b"}', b"[" * 100000, b'{"a":' * 5000, b'{"nobody_knows_this":1}',
           b'{"name":"' + b"x" * 100000 + b'"}', b"{}" * 2, b'{"tokens":[1,]}', b"'{}'")
NO_REQUEST = (
    b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
    b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * MIB + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
    b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
    b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n{}\r\n",
)


def ask(server, method, path, body=None, **headers):
    connection = http.client.HTTPConnection(*split(server.ready["http"]), timeout=2 * DEADLINE_S)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def described(server):
    """The conductor's calls, as it describes them itself."""
    code, text = ask(server, "GET", "/v1/openapi.json")
    expect(code == 200, f"{code}")
    calls = {}
    for path, methods in json.loads(text)["paths"].items():
        for method, call in methods.items():
            schema = call.get("requestBody", {}).get("content", {}).get("application/json", {})
            members = schema.get("schema", {}).get("properties", {})
            calls[path, method.upper()] = {
                name: [row.get("type", "string")] for name, row in members.items()}
    expect(len([one for one in calls if one[1] == "POST"]) >= 7, f"{sorted(calls)}")
    return calls


def calls_of(name, server):
    return described(server) if name == "conductor" else ENGINE if name == "engine" else ADMIN


def says_why(text):
    """An answer that a person can do something with."""
    found = json.loads(text)
    return bool(found.get("text") or found.get("error", {}).get("message"))


def each():
    for name, begin in SERVERS.items():
        with begin() as server:
            yield name, server, calls_of(name, server)


def state(name, server):
    """What bad calls must not change."""
    if name == "conductor":
        found = json.loads(ask(server, "GET", "/v1/conductor")[1])
        return [found[one] for one in ("decisions", "instances", "requests", "models")]
    if name == "engine":
        found = json.loads(ask(server, "GET", "/v1/engine")[1])
        return [found[one] for one in ("asked", "ended", "wrong_bytes")]
    found = json.loads(ask(server, "GET", "/v1/nodes")[1])
    return [one["state"] for one in found["nodes"]]


@case("no JSON, members of other types, and bodies that are too long are refused in words")
def _():
    for name, server, calls in each():
        before = state(name, server)
        for (path, method), members in calls.items():
            if method == "GET":
                code, text = ask(server, "POST", path, b"{}")
                expect(code in (404, 405), f"{name} POST {path}: {code} {text[:200]}")
                for query in ("?after=x", "?after=-1", "?%00=%ff", "?" + "a=b&" * 1000):
                    try:
                        code, text = ask(server, "GET", path + query)
                    except http.client.RemoteDisconnected:
                        code = 431  # There is no room for so many arguments: it is cut.
                    expect(code < 500 or code == 503, f"{name} {path}{query[:20]}: {code}")
                continue
            code, _ = ask(server, "GET", path)
            expect(code == 405, f"{name} GET {path}: {code}")
            bodies = list(NO_JSON)
            for member, types in members.items():
                bodies += [json.dumps({member: value}).encode() for kind, value in VALUES.items()
                           if kind not in types and not (kind == "integer" and "number" in types)]
            for body in bodies:
                code, text = ask(server, method, path, body)
                expect(code == 400 and says_why(text),
                       f"{name} {path} {body[:60]}: {code} {text[:200]}")
            try:
                code, _ = ask(server, method, path, b" " * (40 * MIB))
                expect(code == 413, f"{name} {path}, 40 MiB: {code}")
            except OSError:
                pass  # It was cut off before all of it was sent.
            code, _ = ask(server, method, path, b"{}", Origin="http://evil.example")
            expect(code == 403, f"{name} {path} from a page in a browser: {code}")
        expect(state(name, server) == before, f"{name}: {state(name, server)}, not {before}")


@case("what is no request is answered with a 4xx, or cut, and the next one is served")
def _():
    for name, server, calls in each():
        path = next((one[0] for one in calls if one[1] == "POST"), "/v1/nodes/x/drain")
        for sent in NO_REQUEST:
            sent = sent.replace(b"%s", path.encode())
            with socket.create_connection(split(server.ready["http"]),
                                          timeout=2 * DEADLINE_S) as one:
                found = b""
                try:
                    one.sendall(sent)
                    one.shutdown(socket.SHUT_WR)
                    found = one.recv(4096)
                except OSError:
                    pass
            code = int(found.split()[1]) if found.startswith(b"HTTP/") else 400
            expect(400 <= code < 500 or code in (501, 505) or sent.startswith(b"GET / HTTP/9"),
                   f"{name} {sent[:60]}: {found[:200]}")
        state(name, server)


def begin_slowly(server, calls):
    """Requests that have begun and do not go on: sockets, and whether something trickles in."""
    slow = []
    for path, method in calls:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n".encode()
        sent = [(head, False)]
        if method == "POST":
            sent.append((head + b"Content-Length: 100000\r\n\r\n{", True))
        for words, trickles in sent:
            one = socket.create_connection(split(server.ready["http"]), timeout=DEADLINE_S)
            one.sendall(words)
            one.setblocking(False)
            slow.append((one, trickles))
    return slow


def is_cut(one, trickles):
    try:
        if trickles:
            one.send(b" ")
        return one.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@case("whoever is silent or trickles is cut, and others are served all the while")
def _():
    with contextlib.ExitStack() as all_of_them:
        servers = {name: all_of_them.enter_context(begin()) for name, begin in SERVERS.items()}
        slow = [one for name, server in servers.items()
                for one in begin_slowly(server, calls_of(name, server))]
        print(f"# {len(slow)} that are slow")

        def left():
            for one in list(slow):
                if is_cut(*one):
                    one[0].close()
                    slow.remove(one)
            for name, server in servers.items():
                state(name, server)
            return slow
        until(lambda: not left(), "all are cut", 2 * DEADLINE_S)


main()
