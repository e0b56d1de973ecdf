# SPDX-License-Identifier: Apache-2.0
"""The admin port of real processes: health that is honest, metrics, looking around, and who may."""
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import time

from yuebing import (DEADLINE_S, PROGRAM, SLOWER, Serve, Thread, case, environment, expect, folder,
                     main, new_secret, run, split, threads, until)

MEMORY = "8m"


def serve(*words, command="serve", **more):
    return Serve("--http", "127.0.0.1:0", "--memory", MEMORY, *words, command=command, **more)


def ask(server, method, path, timeout=DEADLINE_S, **headers):
    host, port = split(server.ready["http"])
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.getheader("Content-Type") == "application/json" and method != "HEAD":
        return answer.status, json.loads(body)
    return answer.status, body.decode()


def put(server, key, data=b"x", *words):
    done = subprocess.run([PROGRAM, "put", key, "--directory", server.ready["directory"], *words],
                          input=data, capture_output=True, env=environment(), check=False)
    expect(done.returncode == 0, done.stderr.decode())


@case("health, metrics, nodes, blocks and the configuration are there")
def _():
    with serve() as server:
        code, found = ask(server, "GET", "/healthz")
        expect(code == 200 and found["auth"] == "open", str(found))
        until(lambda: ask(server, "GET", "/readyz")[0] == 200, "ready")
        put(server, "a/b c", b"x" * 5000)
        code, text = ask(server, "GET", "/metrics")
        expect(code == 200 and "yuebing_directory_granted_total 1" in text, text[-500:])
        code, found = ask(server, "GET", "/v1/nodes")
        expect(code == 200 and found["nodes"][0]["state"] == "serving", str(found))
        code, found = ask(server, "GET", "/v1/blocks/a/b%20c")
        expect(code == 200 and found["presence"] == "present" and found["replicas"] == 1,
               str(found))
        code, found = ask(server, "GET", "/v1/blocks/none")
        expect(code == 200 and found["fate"] == "never_put", str(found))
        code, found = ask(server, "GET", "/v1/blocks/a/b%20c?tenant=other")
        expect(found["presence"] == "absent", "another tenant's")
        code, found = ask(server, "GET", "/v1/config")
        rows = {(r["section"], r["name"]): r for r in found["parameters"]}
        expect(rows["node", "memory"]["value"] == MEMORY, str(rows["node", "memory"]))
        for path in ("/index", "/v1", "/v1/nodes/", "/v1/blocks/", "/healthz/x", "/../etc/passwd"):
            code, _ = ask(server, "GET", path)
            expect(code in (400, 404), f"{path}: {code}")
        expect(ask(server, "POST", "/healthz")[0] == 405, "a wrong method")
        expect(ask(server, "HEAD", "/healthz")[0] == 200, "only the head")


@case("what changes something needs the secret, and the right one")
def _():
    with folder() as path:
        secret = new_secret(path + "/secret")
        with open(secret, encoding="ascii") as lines:
            token = next(line for line in lines if line.startswith("secret ")).split()[1]
        with serve("--secret-file", secret) as server:
            put(server, "k", b"x", "--secret-file", secret)
            expect(ask(server, "GET", "/healthz")[1]["auth"] == "secret", "told")
            name = server.ready["nodes"][0]["name"]
            for method, where in (("DELETE", "/v1/blocks/k"), ("POST", f"/v1/nodes/{name}/drain")):
                for given in (None, "", "Bearer ", "Bearer " + token[:-1], f"Bearer {token}x",
                              "Bearer " + "0" * 64, f"Basic {token}"):
                    headers = {} if given is None else {"Authorization": given}
                    code, found = ask(server, method, where, **headers)
                    expect(code == 401, f"{where} {given}: {code} {found}")
                code, _ = ask(server, method, where, Authorization=f"Bearer {token}",
                              Origin="http://evil.example")
                expect(code == 403, f"a page: {code}")
            expect(ask(server, "GET", "/v1/blocks/k")[1]["presence"] == "present", "still there")
            bearer = {"Authorization": f"Bearer {token}"}
            expect(ask(server, "DELETE", "/v1/blocks/k", **bearer)[0] == 200, "the secret")
            expect(ask(server, "DELETE", "/v1/blocks/k", **bearer)[0] == 404, "once")
            expect(ask(server, "GET", "/v1/blocks/k")[1]["fate"] == "removed", "it is gone")
            run("secret", "derive", "--role", "admin", "--secret-file", secret, "--out",
                path + "/admin")
            with open(path + "/admin", encoding="ascii") as lines:
                derived = next(line for line in lines if line.startswith("key ")).split()[4]
            bearer = {"Authorization": f"Bearer {derived}"}
            code, found = ask(server, "POST", f"/v1/nodes/{name}/drain", **bearer)
            expect(code == 200, str(found))
            until(lambda: ask(server, "GET", "/v1/nodes")[1]["nodes"][0]["state"] == "draining",
                  "it drains")
            expect(ask(server, "POST", "/v1/nodes/none/drain", **bearer)[0] == 404, "no such node")


@case("without a secret loopback may, and nobody listens beyond it")
def _():
    with serve() as server:
        put(server, "k")
        code, _ = ask(server, "DELETE", "/v1/blocks/k", Origin="http://evil.example")
        expect(code == 403, "a page in a browser")
        expect(ask(server, "DELETE", "/v1/blocks/k")[0] == 200, "loopback")
        done = run("serve", "--listen", "127.0.0.1:0", "--memory", MEMORY, "--http", "0.0.0.0:0")
        expect(done.code == 2 and "secret" in done.err, f"{done.code} {done.err}")


@case("a port that is taken is a clear error, and nothing is left running")
def _():
    with serve() as server:
        done = run("serve", "--listen", "127.0.0.1:0", "--memory", MEMORY, "--http",
                   server.ready["http"])
        expect(done.code == 1 and server.ready["http"] in done.err and "http.listen" in done.err,
               f"{done.code} {done.err}")


@case("a directory is ready before its nodes are, and says that none is there")
def _():
    with Serve("--http", "127.0.0.1:0") as directory:
        def says(words):
            code, found = ask(directory, "GET", "/readyz")
            expect(code == 200 and found["status"] == "OK", f"{code} {found}")
            return words in found["text"]

        expect(says("no node is there yet"), "it says that puts wait")
        with serve("--directory", directory.address, command="node"):
            until(lambda: not says("no node"), "it knows of the node")
        until(lambda: says("no node is there yet"), "the node has gone")


@case("readyz says why not: no directory, lease out, a directory that rebuilds")
def _():
    with folder() as path:
        words = ("--cluster-file", path + "/cluster", "--directory-lease-ms", "1000")
        directory = Serve("--http", "127.0.0.1:0", *words).begin()
        address = directory.address
        with serve("--directory", address, command="node") as node:
            until(lambda: ask(node, "GET", "/readyz")[0] == 200, "ready")
            directory.kill()

            def not_ready(words):
                code, found = ask(node, "GET", "/readyz")
                return code == 503 and any(w in found["text"] for w in words)

            until(lambda: not_ready(["lease", "registered"]), "it notices")
            expect(ask(node, "GET", "/healthz")[0] == 200, "it lives all the same")
            begun = time.monotonic()
            code, _ = ask(node, "GET", "/v1/nodes")
            expect(code in (503, 504) and time.monotonic() - begun < DEADLINE_S, f"{code}")
            node.process.send_signal(signal.SIGSTOP)  # It cannot tell what it holds.
            with Serve("--http", "127.0.0.1:0", *words, listen=address) as again:
                code, found = ask(again, "GET", "/readyz")
                expect(code == 503 and "rebuilding" in found["text"], f"{code} {found}")
                node.process.send_signal(signal.SIGCONT)
                until(lambda: ask(again, "GET", "/readyz")[0] == 200, "rebuilt")
                until(lambda: ask(node, "GET", "/readyz")[0] == 200, "registered again")


def events(server, path, count):
    """The first events of a stream: (name, data)."""
    host, port = split(server.ready["http"])
    connection = http.client.HTTPConnection(host, port, timeout=DEADLINE_S)
    connection.request("GET", path)
    answer = connection.getresponse()
    expect(answer.status == 200 and answer.getheader("Content-Type") == "text/event-stream",
           f"{answer.status} {answer.getheader('Content-Type')}")
    found = []
    name = ""
    while len(found) < count:
        line = answer.readline().decode()
        expect(line != "", f"it ended after {len(found)}")
        if line.startswith("event: "):
            name = line[7:-1]
        elif line.startswith("data: "):
            found.append((name, json.loads(line[6:])))
    connection.close()
    return found


@case("numbers and spans for programs: at once, and as a stream that goes on")
def _():
    with serve() as server:
        code, found = ask(server, "GET", "/v1/stats")
        expect(code == 200 and found["process"]["kind"] == "serve", str(found)[:500])
        expect(found["process"]["name"] == server.ready["nodes"][0]["name"], str(found["process"]))
        names = {row["name"] for row in found["stats"]}
        expect({"yuebing_directory_lookups_total", "yuebing_node_puts_total"} <= names, str(names))
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        code, found = ask(server, "GET", "/v1/spans?trace=" + trace)
        expect(code == 200 and found["spans"] == [], str(found))
        put(server, "k")
        code, found = ask(server, "GET", "/v1/spans?slowest=3")
        expect(code == 200 and found["wall_ns"] > 10**18, str(found))
        for path in ("/v1/spans?trace=x", "/v1/spans?slowest=x", "/v1/spans?slowest=101",
                     "/v1/stream?interval_ms=1", "/v1/stream?interval_ms=-1"):
            expect(ask(server, "GET", path)[0] == 400, path)
        for path in ("/v1/spans", "/v1/stats", "/v1/stream"):
            expect(ask(server, "POST", path)[0] == 405, path)
        first, second = [e for e in events(server, "/v1/stream?interval_ms=100", 9)
                         if e[0] == "stats"][:2]
        expect(second[1]["now_ns"] > first[1]["now_ns"], "time passes")


@case("so many listen to the stream, and no more; a stop ends them")
def _():
    with serve() as server:
        host, port = split(server.ready["http"])
        listeners = []
        for _ in range(17):
            connection = http.client.HTTPConnection(host, port, timeout=DEADLINE_S)
            connection.request("GET", "/v1/stream?interval_ms=60000")
            listeners.append((connection, connection.getresponse()))
        codes = [answer.status for _, answer in listeners]
        expect(codes == [200] * 16 + [503], str(codes))
        expect(server.stop() == 0, "it ends, whoever listens")
        for connection, _ in listeners:
            connection.close()


@case("a tier that has stepped aside is told of with its remedy, and the node serves without it")
def _():
    remedy = "give the node an empty directory"
    with folder() as path:
        with serve("--data-dir", path) as server:
            until(lambda: ask(server, "GET", "/readyz")[0] == 200, "ready")
            code, found = ask(server, "GET", "/healthz")
            expect(code == 200 and found["status"] == "OK" and found["why"] == [], str(found))
            listed = nodes(server, "--json")
            rows = json.loads(listed)["nodes"][0]["tiers"]
            expect([(r["tier"], r["works"], r["why"]) for r in rows] == [("ssd", True, "")],
                   str(rows))
            expect("stepped aside" not in nodes(server), "nothing to tell")
        log = os.path.join(path, "ssd", "log")
        with open(log, "r+b") as file:  # It becomes something that is not ours.
            file.write(b"somebody else's" * 100000)
        with serve("--data-dir", path) as server:
            until(lambda: ask(server, "GET", "/readyz")[0] == 200, "ready without it")
            until(lambda: ask(server, "GET", "/healthz")[1]["status"] == "DEGRADED", "told")
            code, found = ask(server, "GET", "/healthz")
            expect(code == 200 and len(found["why"]) == 1 and "tier ssd" in found["why"][0] and
                   log.removesuffix("/log") in found["why"][0] and remedy in found["why"][0],
                   str(found))
            expect('yuebing_node_tier_works{tier="ssd"} 0' in ask(server, "GET", "/metrics")[1],
                   "the metric")
            rows = json.loads(nodes(server, "--json"))["nodes"][0]["tiers"]
            expect(len(rows) == 1 and not rows[0]["works"] and remedy in rows[0]["why"] and
                   rows[0]["status"] == "UNSUPPORTED", str(rows))
            text = nodes(server)
            expect("its tier ssd has stepped aside (UNSUPPORTED): " in text and remedy in text,
                   text)
            put(server, "key")  # It serves.


def nodes(server, *words):
    done = run("nodes", "--directory", server.ready["directory"], *words)
    expect(done.code == 0, done.err)
    return done.out


def stands_still(server):
    """What readyz says within a while after a thread was stopped, if that matters to it."""
    until_s = time.monotonic() + 1.5 * SLOWER
    last = False
    while not last:
        last = time.monotonic() > until_s  # Who was asked before that may have answered too early.
        try:
            code, found = ask(server, "GET", "/readyz", timeout=5)
            alive = ask(server, "GET", "/healthz", timeout=5)[0]
        except OSError:
            return []  # It is the one that would answer.
        if code == 503 and "has not turned" in found["text"]:
            expect(alive == 200, "it lives all the same")
            return [found["text"]]
    return []


def stalls(server):
    """Stop one thread after the other; returns what readyz said of each that matters to it."""
    said = []
    for tid in threads(server.pid):
        try:
            with Thread(tid):
                said += stands_still(server)
        except ProcessLookupError:
            continue
        until(lambda: ask(server, "GET", "/readyz")[0] == 200, "it is ready again")
    return said


@case("a worker that has not turned for a second makes it not ready, alive, and ready again after")
def _():
    with Serve("--http", "127.0.0.1:0", "--directory-lease-ms", str(60_000)) as directory:
        until(lambda: ask(directory, "GET", "/readyz")[0] == 200, "ready")
        said = stalls(directory)
        expect(len(said) == 1 and "directory" in said[0], f"{said}")
        with serve("--directory", directory.address, "--name", "n0", command="node") as node:
            until(lambda: ask(node, "GET", "/readyz")[0] == 200, "ready")
            said = stalls(node)
            expect(len(said) == 1 and "node n0 has not turned" in said[0], f"{said}")


@case("many who ask at once are all answered, and do not hold up the store")
def _():
    with serve() as server:
        until(lambda: ask(server, "GET", "/readyz")[0] == 200, "ready")
        host, port = split(server.ready["http"])
        mute = [http.client.HTTPConnection(host, port, timeout=DEADLINE_S) for _ in range(20)]
        for connection in mute:
            connection.connect()
            connection.sock.sendall(b"GET /metr")
        for _ in range(20):
            expect(ask(server, "GET", "/v1/nodes")[0] == 200, "answered")
        put(server, "k", os.urandom(100_000))
        for connection in mute:
            connection.close()


@case("what a page calls a metric of a store, a conductor or an engine is one")
def _():
    docs = pathlib.Path(__file__).resolve().parents[2] / "docs"
    known = (docs / "metrics.md").read_text(encoding="utf-8")
    parts = "engine|conductor|directory|node|object|net|link|transfer"
    named = re.compile(rf"yuebing_(?:{parts})_\w+?(?=(?:_bucket|_sum|_count)?\b)")
    pages = {page: set(named.findall(page.read_text(encoding="utf-8")))
             for page in docs.glob("*.md")}
    expect(len(pages[docs / "operations.md"]) > 10, f"{pages}")
    for page, names in pages.items():
        for name in names:
            expect(f"`{name}`" in known, f"{page}: {name} is not in metrics.md")


main()
