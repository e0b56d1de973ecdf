# SPDX-License-Identifier: Apache-2.0
"""S36, sockets and cores: connections are bounded, and waiting costs nothing."""
import contextlib
import os
import signal
import subprocess

from yuebing import (DEADLINE_S, LONG, PROGRAM, TIME_WAIT, Refused, Serve, Wire, case, connections,
                     cpu_seconds, environment, expect, main, ping, until, window)

IDLE_S = 120 if LONG else 3
STALL_S = 10 if LONG else 2
PEERS = 8


@case("a peer that makes thousands of calls holds one connection, and leaves few behind")
def _():
    with Serve("--net-workers", "2") as server:
        clients = [subprocess.Popen(
            [PROGRAM, "ping", server.address, "--count", "1000", "--interval-ms", "0", "--json"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment())
            for _ in range(PEERS)]
        most = 0

        def done():
            nonlocal most
            most = max(most, connections(server.port))
            return all(client.poll() is not None for client in clients)

        until(done, "the clients end", 2 * DEADLINE_S)
        for client in clients:
            expect(client.returncode == 0, client.stderr.read().decode())
            client.stderr.close()
        expect(0 < most <= PEERS, f"{most} connections of {PEERS} peers")
        counts = server.metrics()
        expect(counts["yuebing_net_accepted_total"] == PEERS, "more connections than peers")
        expect(connections(server.port, TIME_WAIT) < 100, "sockets left in TIME_WAIT")
        until(lambda: server.open_count() == 0, "all connections are closed")


@case("beyond its cap a server says so to newcomers, and serves on")
def _():
    cap = 20
    with Serve("--net-connections-max", str(cap), "--log-lines-per-second", "1") as server, \
            contextlib.ExitStack() as stack:
        inside, told = [], 0
        for _ in range(3 * cap):
            wire = stack.enter_context(Wire(server.address))
            try:
                wire.handshake()
                inside.append(wire)
            except Refused as refused:
                expect("too many" in refused.text, refused.text)
                told += 1
            except (EOFError, ConnectionError):
                told += 1
        expect(len(inside) == cap, f"{len(inside)} were let in, the cap is {cap}")
        expect(told == 2 * cap, f"{told} were turned away")
        until(lambda: server.refused("too_many") == 2 * cap, "all are counted")
        for number, wire in enumerate(inside):
            expect(wire.echo(b"%d" % number) == b"%d" % number, "one inside is not served")
        inside[0].close()
        until(lambda: server.open_count() == cap - 1, "the place is free")
        until(lambda: ping(server.address).code == 0, "a newcomer takes the free place")


@case("an idle process uses less than 1 % of a core, with and without connections")
def _():
    with Serve("--net-workers", "2") as alone, Serve("--net-io", "io_uring") as uring, \
            Serve("--net-workers", "2") as crowded, contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(Wire(crowded.address)).handshake()
        for server in (alone, uring, crowded):
            expect(server is crowded or ping(server.address).code == 0, "not served")
        window(0.5)  # What the start and the handshakes left to do.
        before = [cpu_seconds(server.pid) for server in (alone, uring, crowded)]
        window(IDLE_S)
        for server, name, begun in zip((alone, uring, crowded), ("alone", "io_uring", "crowded"),
                                       before):
            used = (cpu_seconds(server.pid) - begun) / IDLE_S
            print(f"# {name}: {100 * used:.3f} % of a core")
            expect(used < 0.01, f"{name}: {100 * used:.2f} % of a core while idle")


@case("waiting for a peer that is stopped uses less than 2 % of a core, and ends well")
def _():
    with Serve() as server:
        client = subprocess.Popen(
            [PROGRAM, "ping", server.address, "--count", "100", "--interval-ms", "10",
             "--timeout-ms", "60000", "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        try:
            until(lambda: server.open_count() == 1, "the client is connected")
            os.kill(server.pid, signal.SIGSTOP)
            window(0.3)
            before = cpu_seconds(client.pid)
            window(STALL_S)
            used = (cpu_seconds(client.pid) - before) / STALL_S
        finally:
            os.kill(server.pid, signal.SIGCONT)
        out, err = client.communicate(timeout=DEADLINE_S)
        print(f"# {100 * used:.3f} % of a core")
        expect(used < 0.02, f"{100 * used:.2f} % of a core while waiting")
        expect(client.returncode == 0, f"{err} {out}")


main()
