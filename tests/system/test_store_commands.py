# SPDX-License-Identifier: Apache-2.0
"""The commands that use a store, as processes of their own: bytes, tables, JSON, refusals, ends."""
import contextlib
import json
import os
import signal
import subprocess
import time

from yuebing import (DEADLINE_S, PROGRAM, SLOWER, Serve, case, environment, expect, expect_soon,
                     folder, main, new_secret, run, until)

MEMORY = "16m"


def store(*words, memory=MEMORY, **more):
    return Serve("--memory", memory, *words, command="serve", **more)


def command(server, *words, data=None, code=0):
    """Run a command against a store; bytes in, bytes out."""
    done = subprocess.run(
        [PROGRAM, *words, "--directory", server.ready["directory"]], input=data or b"",
        capture_output=True, timeout=DEADLINE_S, env=environment(), check=False)
    text = done.stderr.decode()
    expect(done.returncode == code, f"{words}: exit code {done.returncode}, not {code}: {text}")
    if code != 0:
        expect(text.startswith(f"yuebing {words[0]}: "), f"no reason: {text}")
    return done.stdout, text


def told(server, *words, data=None, code=0):
    return json.loads(command(server, *words, "--json", data=data, code=code)[0])


@contextlib.contextmanager
def apart(count):
    """A directory and `count` nodes, each a process of its own."""
    with Serve("--directory-lease-ms", str(1000 * SLOWER)) as directory, \
            contextlib.ExitStack() as stack:
        where = directory.address
        nodes = [Serve("--directory", where, "--name", f"n{i}", "--memory", MEMORY,
                       command="node", listen="127.0.0.1:0").begin() for i in range(count)]
        for node in nodes:
            stack.callback(node.kill)
        until(lambda: len(told(directory, "nodes")["nodes"]) == count, "all are known")
        yield directory, nodes


@case("a put where no node is says so, and keeps nobody waiting for it")
def _():
    with Serve() as directory:
        _, text = command(directory, "put", "k", "--timeout-ms", str(500 * SLOWER), code=1)
        expect("UNREACHABLE" in text and "no node is there yet" in text and
               f"yuebing node --directory {directory.address}" in text, text)
        expect(told(directory, "explain", "k")["fate"] == "never_put", "it is not on its way")


@case("a store is ready in less than a second, and says where it listens")
def _():
    begun = time.monotonic()
    with Serve(command="serve") as server:
        took = time.monotonic() - begun
        expect_soon(took, 1, "ready")
        node, = server.ready["nodes"]
        expect(node["registered"] and node["address"] != server.address, str(server.ready))
        expect(run("ping", node["address"], "--identity", node["identity"]).code == 0, "node")
        expect(run("ping", server.address).code == 0, "directory")
        found, = told(server, "nodes")["nodes"]
        expect(found["name"] == node["name"] and found["state"] == "serving", str(found))


@case("what is put comes back byte for byte, through pipes and files, whatever the bytes")
def _():
    values = [b"", b"\0", bytes(range(256)) * 3, b"\n\r\n", os.urandom(3_000_001)]
    with store() as server, folder() as path:
        for number, value in enumerate(values):
            command(server, "put", f"pipe/{number}", data=value)
            expect(command(server, "get", f"pipe/{number}")[0] == value, f"pipe {number}")
            with open(f"{path}/in", "wb") as file:
                file.write(value)
            found = told(server, "put", f"file/{number}", f"{path}/in")
            expect(found["status"] == "OK" and found["bytes"] == len(value), str(found))
            found = told(server, "get", f"file/{number}", f"{path}/out")
            expect(found["bytes"] == len(value), str(found))
            with open(f"{path}/out", "rb") as file:
                expect(file.read() == value, f"file {number}")
        name = "k\u00e9y with spaces/\u6708\u997c"
        command(server, "put", name, "-", data=b"moon")
        expect(command(server, "get", name, "-")[0] == b"moon", "a key is any text")


@case("what is not there is told by exit code and by name, and leaves no file")
def _():
    with store() as server, folder() as path:
        out, err = command(server, "get", "missing", code=1)
        expect(out == b"" and "NOT_FOUND" in err and "explain" in err, err)
        command(server, "get", "missing", f"{path}/out", code=1)
        expect(not os.path.exists(f"{path}/out"), "a file for nothing")
        expect(told(server, "stat", "missing", code=1)["presence"]
               == "absent", "stat")
        expect("NOT_FOUND" in command(server, "rm", "missing", code=1)[1], "rm")
        expect("no node" in command(server, "drain", "missing", code=1)[1], "drain")
        command(server, "put", "k", "/nowhere/file", code=1)
        expect(told(server, "ls")["keys"] == [], "something was put")


@case("the first writer wins; --replace writes a new version")
def _():
    with store() as server:
        first = told(server, "put", "k", data=b"one")
        out, err = command(server, "put", "k", data=b"two", code=1)
        expect("EXISTS" in err and "--replace" in err and out == b"", err)
        expect(command(server, "get", "k")[0] == b"one", "the first one")
        second = told(server, "put", "k", "--replace", data=b"three")
        expect(second["grant"] > first["grant"], f"{first} {second}")
        expect(command(server, "get", "k")[0] == b"three", "the new one")
        expect(told(server, "stat", "k")["grant"] == second["grant"], "its version")


@case("ls and rm know keys, prefixes and expressions, and leave the rest alone")
def _():
    with store() as server:
        for key in ("a/1", "a/2", "b/1", "c"):
            command(server, "put", key, data=key.encode())
        listed = told(server, "ls")
        expect({k["key"]: k["bytes"] for k in listed["keys"]}
               == {"a/1": 3, "a/2": 3, "b/1": 3, "c": 1}, str(listed))
        expect({k["key"] for k in told(server, "ls", "a/")["keys"]} == {"a/1", "a/2"}, "prefix")
        expect({k["key"] for k in told(server, "ls", "--regex", "/1$")["keys"]}
               == {"a/1", "b/1"}, "expression")
        command(server, "ls", "a", "--regex", "a", code=2)
        expect(b"b/1" in command(server, "ls")[0], "as text")
        expect(told(server, "rm", "--match", "a/")["removed"] == 2, "by prefix")
        out, err = command(server, "rm", "b/1", "a/1", code=1)
        expect("a/1: NOT_FOUND" in err and "b/1" not in err, err)
        expect([k["key"] for k in told(server, "ls")["keys"]] == ["c"], "the rest")
        told(server, "rm", "--all", "--force")
        expect(told(server, "ls")["keys"] == [], "nothing is left")
        command(server, "rm", code=2)
        command(server, "rm", "c", "--all", code=2)


@case("explain tells why: there, never put, removed, expired, flushed, evicted")
def _():
    with store(memory="4m") as server:
        command(server, "put", "there", "--pin", data=b"x" * 1000)
        found = told(server, "explain", "there")
        expect(found["presence"] == "present" and found["bytes"] == 1000, str(found))
        copy, = found["copies"]
        expect(copy["status"] == "OK" and copy["tier"] == "dram", str(copy))
        expect(b"never evicted" in command(server, "explain", "there")[0], "the pin")
        expect(told(server, "explain", "never")["fate"] == "never_put", "never")
        command(server, "put", "gone", data=b"x")
        command(server, "rm", "gone")
        expect(told(server, "explain", "gone")["fate"] == "removed", "removed")
        command(server, "put", "short", "--ttl-ms", "50", data=b"x")
        until(lambda: told(server, "explain", "short")["fate"] == "expired", "expired")
        for number in range(8):
            command(server, "put", f"big/{number}", data=os.urandom(700_000))
        fates = [told(server, "explain", f"big/{n}") for n in range(8)]
        evicted = [f for f in fates if f["presence"] == "absent"]
        expect(evicted and all(f["fate"] == "evicted" for f in evicted), str(fates))
        expect(command(server, "get", "there")[0] == b"x" * 1000, "the pinned one stays")
        told(server, "rm", "--all", "--force")
        expect(told(server, "explain", "there")["fate"] == "flushed", "flushed")


def numa_nodes():
    """What a pool may say that it lies on: a node of this machine, or that it does not know."""
    try:
        with open("/sys/devices/system/node/online", encoding="ascii") as file:
            ranges = [part.split("-") for part in file.read().strip().split(",")]
    except FileNotFoundError:
        return {None}
    return {None, *(n for ends in ranges for n in range(int(ends[0]), int(ends[-1]) + 1))}


@case("node check: every byte of every node is accounted for")
def _():
    with store("--nodes", "3") as server:
        for number in range(8):
            command(server, "put", f"k{number}", "--replicas", "2", data=os.urandom(20_000))
        nodes = told(server, "node", "check")["nodes"]
        expect(len(nodes) == 3 and sum(n["blocks"] for n in nodes) == 16, str(nodes))
        for node in nodes:
            expect(node["consistent"] and node["used"] == node["live"] + node["in_flight"]
                   + node["ungranted"] + node["quarantined"], str(node))
            expect(node["page_bytes"] >= 4096, str(node))
            expect(node["numa_node"] in numa_nodes(), str(node))
        expect(command(server, "node", "check")[0].count(b"adds up") == 3, "as text")


@case("a drained node has nothing that is not elsewhere, and can be taken back")
def _():
    with apart(2) as (directory, nodes):
        values = {f"k{i}": os.urandom(50_000) for i in range(9)}
        for key, value in values.items():
            command(directory, "put", key, data=value)
        on = [k["node"] for k in told(directory, "ls")["keys"]]
        expect({"n0", "n1"} == set(on), f"both have some: {on}")
        found = told(directory, "drain", "n0")
        expect(found["drained"] and found["left"] == 0, str(found))
        states = {n["name"]: n["state"] for n in told(directory, "nodes")["nodes"]}
        expect(states == {"n0": "draining", "n1": "serving"}, str(states))
        expect({k["node"] for k in told(directory, "ls")["keys"]} == {"n1"}, "all moved")
        expect(nodes[0].stop() == 0, "it ends well")
        for key, value in values.items():
            expect(command(directory, "get", key)[0] == value, f"{key} was lost")
        expect("n1" in command(directory, "drain", "n1", "--undo")[0].decode(), "taken back")


@case("a drain says at once what fits on no other node, and goes on when there is room")
def _():
    with apart(1) as (directory, _nodes):
        for number in range(7):
            command(directory, "put", f"k{number}", data=os.urandom(1000))
        out, err = command(directory, "drain", "n0", "--timeout-ms", str(1500 * SLOWER),
                           code=1)
        expect("7 blocks fit on no other node yet" in err and "7 of 7" in err, err)
        row, = told(directory, "nodes")["nodes"]
        expect(row["state"] == "draining" and row["drain_stuck"] == 7 and not row["drained"],
               str(row))
        expect(b"draining, 7 fit nowhere" in command(directory, "nodes")[0], "for people")
        with Serve("--directory", directory.address, "--name", "n1", "--memory", MEMORY,
                   command="node", listen="127.0.0.1:0").begin():
            found = told(directory, "drain", "n0")
            expect(found["drained"] and found["stuck"] == 0, str(found))
            until(lambda: [n["drained"] for n in told(directory, "nodes")["nodes"]]
                  == [True, False], "it is drained")
            until(lambda: told(directory, "nodes")["repair"]["copied_bytes"] >= 7000, "copied")


@case("blocks with two copies survive a node that is killed; the others are told as lost")
def _():
    with apart(3) as (directory, nodes):
        values = {f"k{i}": os.urandom(30_000) for i in range(6)}
        for key, value in values.items():
            command(directory, "put", key, "--replicas", "2", data=value)
        for number in range(6):
            command(directory, "put", f"single{number}", data=b"x" * 100)
        lost = {k["key"] for k in told(directory, "ls", "single")["keys"] if k["node"] == "n1"}
        nodes[1].kill()
        until(lambda: len(told(directory, "nodes")["nodes"]) == 2, "its death is noticed")
        for key, value in values.items():
            expect(command(directory, "get", key)[0] == value, f"{key} was lost")
        for key in lost:
            until(lambda k=key: told(directory, "explain", k)["fate"] == "slot_lost", key)
        until(lambda: all(told(directory, "stat", k)["replicas"] == 2 for k in values),
              "the copies are made again")


@case("tenants do not see each other, and only the right key gets in")
def _():
    with folder() as path:
        secret = new_secret(path + "/secret")
        with store("--secret-file", secret) as server:
            mine = ("--secret-file", secret, "--tenant", "a")
            other = ("--secret-file", secret, "--tenant", "b")
            command(server, "put", "k", *mine, data=b"mine")
            expect(command(server, "get", "k", *mine)[0] == b"mine", "its owner")
            command(server, "get", "k", *other, code=1)
            expect(told(server, "ls", *other)["keys"] == [], "listed to another tenant")
            command(server, "get", "k", code=2)
            command(server, "drain", server.ready["nodes"][0]["name"], "--secret-file", secret,
                    "--auth-role", "client", "--timeout-ms", "2000", code=2)


@case("without a directory every command says so, and how to name another")
def _():
    with Serve() as server:
        gone = server
    for words in (["put", "k"], ["get", "k"], ["ls"], ["stat", "k"], ["rm", "k"], ["nodes"],
                  ["explain", "k"], ["drain", "n"]):
        err = command(gone, *words, "--timeout-ms", "800", code=1)[1]
        expect(gone.address in err, f"{words}: {err}")


@case("a command line that cannot be meant is refused with exit code 2")
def _():
    for words in (["put"], ["get"], ["stat"], ["explain"], ["drain"], ["rm"],
                  ["put", "k" * 1025], ["put", "k", "--replicas", "9"],
                  ["get", "k", "--timeout-ms", "0"], ["get", "k", "--json"], ["node", "chekc"]):
        done = run(*words)
        expect(done.code == 2 and done.err.startswith(f"yuebing {words[0]}: "),
               f"{words}: {done.code} {done.err}")


@case("a store stops on SIGTERM with exit code 0 in the middle of puts, and at once on a second")
def _():
    server = store(memory="64m").begin()
    writers = [subprocess.Popen(
        [PROGRAM, "put", f"w{i}", "/dev/stdin", "--directory", server.address,
         "--timeout-ms", "2000"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=environment()) for i in range(4)]
    for writer in writers:
        writer.stdin.write(bytes(8 << 20))
        writer.stdin.close()
    begun = time.monotonic()
    expect(server.stop() == 0, f"{server.log[-5:]}")
    expect_soon(time.monotonic() - begun, 4, "the stop")
    for writer in writers:
        writer.wait(DEADLINE_S)

    server = store("--net-drain-ms", "600000").begin()
    socket_peer = subprocess.Popen(  # It is stopped, so its connection cannot be drained.
        [PROGRAM, "ping", server.address, "--count", "1000000", "--interval-ms", "1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
    try:
        until(lambda: server.metrics()["yuebing_net_accepted_total"] >= 3, "it is connected")
        socket_peer.send_signal(signal.SIGSTOP)
        server.process.send_signal(signal.SIGTERM)
        server.wait_log("daemon: stopping")
        server.process.send_signal(signal.SIGTERM)
        expect(server.wait() == 1, "the second forces")
    finally:
        socket_peer.kill()
        socket_peer.wait()


main()
