# SPDX-License-Identifier: Apache-2.0
"""S36 for the store: connections are few and kept, and who waits or is idle uses no processor."""
import os

from store import MIB, Store
from yuebing import (LONG, SLOWER, TIME_WAIT, case, cpu_seconds, expect, machine_is_busy, main,
                     tcp_sockets, window)

CONNECTIONS_MAX = 8  # Of one client to one node.
CALLS = (30_000 if LONG else 6_000) // SLOWER


def connections(pid, port):
    """How many connections of a process go to a port."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    return sum(one.inode in inodes and one.peer_port == port for one in tcp_sockets())


def time_wait(port):
    return sum(one.state == TIME_WAIT and port in (one.port, one.peer_port)
               for one in tcp_sockets())


@case("64 threads make thousands of small gets over a handful of connections")
def few_connections():
    with Store(nodes=2, memory="128m") as store, store.client(no_shm=1) as client:
        client.put("k:0-999", bytes=4096).all("OK")
        client.loop(0, "get", "k:0-999", batch=1, bytes=4096, threads=64)
        most = 0
        while client.loops(0)["calls"] < CALLS:
            most = max(most, *(connections(client.pid, one.port) for one in store.nodes))
            window(0.05)
        found = client.unloop(0)
        expect(found["wrong"] == 0 and set(found["items"]) == {"OK"}, f"{found}")
        expect(found["late"] == 0 or machine_is_busy(), f"{found}")
        expect(0 < most <= CONNECTIONS_MAX, f"{most} connections to one node")
        waiting = sum(time_wait(one.port) for one in (*store.nodes, store.directory))
        expect(waiting < 100, f"{waiting} sockets in TIME_WAIT")
        print(f"# {most} connections to one node, p50 {found['p50_us']} us")


@case("large values use the connections that are there, and come whole")
def large_values():
    with Store(nodes=2, memory="512m") as store, store.client(no_shm=1) as client:
        client.put("big:0-7", bytes=16 * MIB, batch=1).all("OK")
        client.loop(0, "get", "big:0-7", batch=1, bytes=16 * MIB, threads=8)
        window(1.0)
        most = max(connections(client.pid, one.port) for one in store.nodes)
        found = client.unloop(0)
        expect(found["wrong"] == 0 and set(found["items"]) == {"OK"}, f"{found}")
        expect(found["late"] == 0 or machine_is_busy(), f"{found}")
        expect(0 < most <= CONNECTIONS_MAX, f"{most} connections to one node")


@case("an idle store, and a client that waits for a stopped node, use hardly any processor")
def idle_and_waiting():
    with Store(nodes=1, lease_ms=20000) as store, store.client(no_shm=1) as client:
        client.put("k:0-99", bytes=4096).all("OK")
        client.get("k:0-99", bytes=4096).all("OK")
        pids = [store.directory.pid, store.nodes[0].pid, client.pid]
        window(0.5)
        span = 20.0 if LONG else 2.0
        before = [cpu_seconds(pid) for pid in pids]
        window(span)
        used = [(cpu_seconds(pid) - then) / span for pid, then in zip(pids, before)]
        print("# idle: " + ", ".join(f"{100 * one:.2f} %" for one in used))
        expect(sum(used) < 0.01 * 3 * SLOWER, f"{used}")
        store.nodes[0].pause()
        client.send("get", keys="k:0-9", bytes=4096, ms=int(span * 1000))
        window(0.2)
        before = cpu_seconds(client.pid)
        window(span / 2)
        used = (cpu_seconds(client.pid) - before) / (span / 2)
        answer = client.receive().sound()
        store.nodes[0].go_on()
        expect(answer.counted["OK"] == 0, f"{answer}")
        expect(used < 0.02 * SLOWER, f"waiting used {100 * used:.1f} % of a core")
        print(f"# waiting: {100 * used:.2f} %")


main()
