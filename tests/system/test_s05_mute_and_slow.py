# SPDX-License-Identifier: Apache-2.0
"""S05, the mute peer and the slow header: nobody waits for those who do not speak."""
import select
import signal
import socket
import time

from yuebing import (DEADLINE_S, ECHO, Failed, Serve, Wire, case, expect, expect_soon, frame,
                     hello, main, ping, until)

HALF_HEADERS = 1000


def drain_all(wires, seconds=DEADLINE_S):
    """Wait until the other side has closed every one of them."""
    left = {wire.socket.fileno(): wire for wire in wires}
    poller = select.poll()
    for descriptor in left:
        poller.register(descriptor, select.POLLIN)
    end = time.monotonic() + seconds
    while left:
        ready = poller.poll(max(0, (end - time.monotonic()) * 1000))
        if not ready:
            raise Failed(f"{len(left)} of {len(wires)} are still open after {seconds} s")
        for descriptor, _ in ready:
            try:
                data = left[descriptor].socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                poller.unregister(descriptor)
                del left[descriptor]


def drip(wire, data, interval_s):
    """Send a byte now and then until the other side closes; return how many were sent."""
    wire.socket.settimeout(DEADLINE_S)
    for sent, value in enumerate(data):
        try:
            wire.send(bytes([value]))
        except (BrokenPipeError, ConnectionResetError):
            return sent
        if select.select([wire.socket], [], [], interval_s)[0]:
            wire.until_closed()
            return sent + 1
    raise Failed("every byte was sent, and nobody minded")


@case("a caller of a peer that accepts and never speaks gets an error at its deadline")
def _():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        done = ping("127.0.0.1:%d" % mute.getsockname()[1], "--timeout-ms", "300", count=1)
    expect(done.code == 1, f"code {done.code}: {done.err}")
    expect("TIMED_OUT" in done.err, done.err)


@case("1000 half headers do not keep others waiting, cost no thread, and are dropped and counted")
def _():
    with Serve("--net-handshake-timeout-ms", "1500", "--log-lines-per-second", "1") as server:
        threads = server.threads()
        wires = [Wire(server.address) for _ in range(HALF_HEADERS)]
        for wire in wires:
            wire.send(hello()[:8])
        done = ping(server.address, count=50)
        expect(done.code == 0 and done.json()["answered"] == 50, done.err)
        expect(server.threads() == threads, f"{server.threads()} threads, {threads} before")
        drain_all(wires)
        for wire in wires:
            wire.close()
        until(lambda: server.refused("too_slow") == HALF_HEADERS, "all counted as too slow")
        expect(ping(server.address).code == 0, "the server does not answer afterwards")


@case("a hello that comes byte by byte is dropped at the handshake's deadline")
def _():
    with Serve("--net-handshake-timeout-ms", "500") as server:
        with Wire(server.address) as wire:
            sent = drip(wire, hello(), 0.1)
            expect(sent < 20, f"{sent} bytes were taken")
        until(lambda: server.refused("too_slow") == 1, "counted")


@case("a frame that comes byte by byte ends its connection, and no other")
def _():
    with Serve("--net-frame-timeout-ms", "500") as server:
        with Wire(server.address) as slow, Wire(server.address) as other, \
                Wire(server.address) as body:
            for wire in (slow, other, body):
                wire.handshake()
            body.send(frame(ECHO, body_bytes=1000) + b"x")
            drip(slow, frame(ECHO), 0.1)
            drip(body, b"y" * 999, 0.1)
            expect(other.echo(b"still here") == b"still here", "the other one suffered")
        until(lambda: server.metrics().get(
            'yuebing_net_closed_total{status="TIMED_OUT"}', 0) == 2, "both counted")


@case("a stop takes less than 2 s with half-open, mute, idle and slow peers connected")
def _():
    server = Serve("--net-handshake-timeout-ms", "60000", "--net-workers", "2").begin()
    half = [Wire(server.address) for _ in range(200)]
    for wire in half:
        wire.send(hello()[:20])
    idle = [Wire(server.address) for _ in range(20)]
    for number, wire in enumerate(idle):
        wire.handshake()
        if number % 2:
            wire.send(frame(ECHO, body_bytes=5000) + b"half a body")
    mute = [Wire(server.address) for _ in range(20)]
    until(lambda: server.metrics()["yuebing_net_accepted_total"] == 240, "all accepted")
    begun = time.monotonic()
    code = server.stop()
    took = time.monotonic() - begun
    for wire in half + idle + mute:
        wire.close()
    expect(code == 0, f"exit code {code}: {server.log[-5:]}")
    expect_soon(took, 2, f"the stop: {server.log[-5:]}")


def crowd(server):
    """A connection whose answers are asked for and never read."""
    wire = Wire(server.address)
    wire.handshake()
    for number in range(16):
        wire.send(frame(ECHO, bytes(1 << 20), number + 1))
    until(lambda: server.metrics().get(
        'yuebing_net_served_total{class="first_token",status="OK"}', 0) == 16, "all served")
    return wire


@case("a peer that does not read its answers is given the drain's time and no more")
def _():
    server = Serve("--net-drain-ms", "300").begin()
    with crowd(server):
        code = server.stop()
    expect(code == 0, f"exit code {code}")
    expect(any("still running, aborting" in line for line in server.log), str(server.log))


@case("a second signal ends at once what still drains")
def _():
    server = Serve("--net-drain-ms", "600000").begin()
    with crowd(server):
        server.process.send_signal(signal.SIGTERM)
        server.wait_log("stopping")
        server.process.send_signal(signal.SIGINT)
        code = server.wait()
    expect(code == 1, f"exit code {code}")


main()
