# SPDX-License-Identifier: Apache-2.0
"""S11, sixty-four at once: a published port is one that this very process listens on."""
import contextlib
import socket
import time

from yuebing import Serve, case, expect, expect_soon, main, ping, run

AT_ONCE = 64
FOREIGN = 8


@case("64 processes that start at once have 64 ports, each its own, and each answers there")
def _():
    with contextlib.ExitStack() as stack:
        foreign = [stack.enter_context(socket.create_server(("127.0.0.1", 0)))
                   for _ in range(FOREIGN)]
        servers = [Serve() for _ in range(AT_ONCE)]
        for server in servers:
            stack.enter_context(server)
        ports = {server.port for server in servers}
        expect(len(ports) == AT_ONCE, f"only {len(ports)} ports")
        expect(0 not in ports, "port 0 was published")
        expect(not ports & {s.getsockname()[1] for s in foreign}, "a foreign port was published")
        expect(len({s.ready["identity"] for s in servers}) == AT_ONCE, "identities repeat")
        for server in servers:
            done = ping(server.address, "--identity", server.ready["identity"], count=1)
            expect(done.code == 0, f"{server.address}: {done.err}")


@case("a port that is taken is refused at once, by name, whoever has it")
def _():
    with Serve() as server, socket.create_server(("127.0.0.1", 0)) as foreign:
        for port in (server.port, foreign.getsockname()[1]):
            for text in (f"127.0.0.1:{port}", f"localhost:{port}"):
                begun = time.monotonic()
                done = run("serve", "--json", "--listen", text)
                expect(done.code == 1 and done.out == "", f"{text}: {done.code} {done.out}")
                expect("address in use" in done.err and f"127.0.0.1:{port}" in done.err, done.err)
                expect_soon(time.monotonic() - begun, 10, "it did not fail at once")
        expect(ping(server.address).code == 0, "the first one suffered")


@case("a port is free again as soon as its process has ended, also with connections behind it")
def _():
    with Serve() as first:
        address = first.address
        expect(ping(address, count=20).code == 0, "not served")
    for _ in range(5):
        with Serve(listen=address) as again:
            expect(again.address == address and ping(address).code == 0, "not there again")


main()
