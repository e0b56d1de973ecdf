# SPDX-License-Identifier: Apache-2.0
"""S32, a node that dies, one whose port is sick, and one that is new."""
import contextlib
import ctypes
import os
import socket
import time

from store import LEASE_S, Store
from yuebing import (DEADLINE_S, Skipped, case, expect, expect_soon, machine_is_busy, main, until,
                     window)

PIDFD_OPEN, PIDFD_GETFD = 434, 438  # The same numbers on every architecture.


def tcp_sockets(pid):
    """The TCP sockets of a process, as descriptors of ours that mean the same ones."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = libc.syscall(PIDFD_OPEN, pid, 0)
    if process < 0:
        raise Skipped("no pidfd here")
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                continue
            copy = libc.syscall(PIDFD_GETFD, process, int(name), 0)
            if copy < 0:
                raise Skipped("no pidfd_getfd here")
            one = socket.socket(fileno=copy)
            if one.family == socket.AF_INET and one.type == socket.SOCK_STREAM:
                found.append(one)
            else:
                one.close()
    os.close(process)
    return found


class Sick:
    """A node's port that refuses: it listens no more, and who was connected is cut off. Its own
    connections, to the directory, are left alone."""

    def __init__(self, node):
        self.listener = None
        for one in tcp_sockets(node.pid):
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                self.listener = one
                one.shutdown(socket.SHUT_RDWR)
            elif one.getsockname()[1] == node.port:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            else:
                one.close()
        expect(self.listener is not None, "it listens")

    def heal(self):
        self.listener.listen(128)
        self.listener.close()


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return "127.0.0.1:%d" % one.getsockname()[1]


def failed(loop):
    return sum(count for status, count in loop["items"].items() if status not in ("OK", "EXISTS"))


def quiet_again(client, seconds):
    """Wait until fewer than 1 % of the puts of a quarter of a second fail: soon."""
    begun = time.monotonic()
    while True:
        client.loops(0, reset=1)
        window(0.25)
        found = client.loops(0)
        if found["keys"] > 0 and failed(found) <= found["keys"] / 100:
            break
        expect(time.monotonic() - begun < DEADLINE_S, f"puts still fail: {found}")
    expect_soon(time.monotonic() - begun, seconds, "puts failed for")


@case("a node dies under load: puts go elsewhere within a second, its keys fail fast")
def dead_node():
    with Store(nodes=3, memory="128m") as store, \
            store.client(no_shm=1) as a, store.client(no_shm=1) as b:
        b.put("dead:0-9", bytes=1000, preferred="n0").all("OK")
        a.loop(0, "put", "load", fresh=1, batch=4, bytes=16384, threads=4, ms=3000)
        until(lambda: a.loops(0)["keys"] > 200, "it is loaded")
        expect(failed(a.loops(0)) == 0, "all is well")
        store.nodes[0].kill()
        quiet_again(a, 1.5)
        found = b.get("dead:0-9", bytes=1000, ms=10000)
        expect_soon(found["ms"] / 1000, 2, f"{found}")
        found.all("PEER_LOST", "UNREACHABLE", "REFUSED", "NOT_FOUND", "TIMED_OUT")
        found = a.unloop(0)
        expect(found["late"] == 0 or machine_is_busy(), f"{found}")
        until(lambda: len(b.nodes()) == 2, "it is no member any more", LEASE_S + DEADLINE_S)
        b.get("dead:0-9", bytes=1000).all("NOT_FOUND")


@case("a port that refuses while its heart beats gets nothing new, and is used again when well")
def sick_port():
    with Store(nodes=1, memory="256m") as store, store.client(no_shm=1) as a, \
            store.client(no_shm=1) as b:
        # A port of its own choice would be another one after a second listen().
        sick_one = store.node("sick", "--net-io", "epoll", memory="256m", listen=free_address())
        store.nodes.append(sick_one)
        sick_one.begin()
        until(lambda: len(a.nodes()) == len(b.nodes()) == 2, "it is known")
        b.put("there:0-9", bytes=1000, preferred="sick").all("OK")
        a.loop(0, "put", "load", fresh=1, batch=4, bytes=4096, threads=2, rest_us=1000, ms=3000)
        until(lambda: a.loops(0)["keys"] > 200, "it is loaded")
        sick = Sick(sick_one)
        quiet_again(a, 1.5)
        found = b.get("there:0-9", bytes=1000, ms=10000)
        expect_soon(found["ms"] / 1000, 2, f"{found}")
        found.all("PEER_LOST", "UNREACHABLE", "REFUSED", "TIMED_OUT")
        expect(len(b.nodes()) == 2, "reports never remove a member")
        before = sick_one.metric("yuebing_node_puts_total", status="OK")
        window(0.5)
        after = sick_one.metric("yuebing_node_puts_total", status="OK")
        expect(before == after, f"{after - before} puts reached the sick one")
        sick.heal()
        until(lambda: sick_one.metric("yuebing_node_puts_total", status="OK") > after,
              "it is used again")
        until(lambda: b.get("there:0-9", bytes=1000).sound().counted["OK"] == 10, "its keys too")
        found = a.unloop(0)
        expect(found["late"] == 0 or machine_is_busy(), f"{found}")


@case("a newcomer among full nodes gets at most twice its fair share, and no whole batch")
def newcomer():
    with Store(nodes=3, memory="64m") as store, store.client(no_shm=1) as a:
        for number in range(10):
            a.put(f"old{number}:0-99", bytes=200_000).all("OK", "NO_SPACE", "AGAIN")
        new = store.node("new", memory="64m").begin()
        store.nodes.append(new)
        until(lambda: len(a.nodes()) == 4 and any(
            one["name"] == "new" and one["age_ms"] < 1000 for one in a.nodes()), "it is known")
        for number in range(10):
            before = new.metric("yuebing_node_puts_total", status="OK")
            a.put(f"new{number}:0-99", bytes=20_000).all("OK")
            share = new.metric("yuebing_node_puts_total", status="OK") - before
            expect(share <= 70, f"round {number}: {share} of 100 went to the newcomer")
        share = new.metric("yuebing_node_puts_total", status="OK") / 1000
        print(f"# {100 * share:.0f} % went to the newcomer")
        expect(0.1 < share <= 0.5, f"{share}")


main()
