# SPDX-License-Identifier: Apache-2.0
"""S09, two processes, one address: the identity says who is meant, the address only where."""
from yuebing import DEADLINE_S, Serve, Wire, case, expect, main, ping


@case("three processes on 127.0.0.1 answer each under its own name, and nobody for another")
def _():
    with Serve() as a, Serve() as b, Serve() as c:
        servers = (a, b, c)
        identities = [server.ready["identity"] for server in servers]
        expect(len(set(identities)) == 3, f"not distinct: {identities}")
        expect(len({server.address for server in servers}) == 3, "not distinct addresses")
        for server in servers:
            for identity in identities:
                done = ping(server.address, "--identity", identity, count=1)
                if identity == server.ready["identity"]:
                    expect(done.code == 0 and done.json()["identity"] == identity, done.err)
                else:
                    expect(done.code == 1, f"{server.address} answered for {identity}")
                    expect("STALE" in done.err, done.err)
                    expect(identity in done.err and server.ready["identity"] in done.err,
                           f"both names are to be told: {done.err}")


@case("a peer sees the identity of the ready line in the handshake itself")
def _():
    with Serve() as server, Wire(server.address) as wire:
        found = wire.handshake().hex()
        expect(found == server.ready["identity"], f"{found} in the challenge")


@case("a process that is started again on the same port is another one, and newer")
def _():
    with Serve() as first:
        before = ping(first.address).json()
        address = first.address
    with Serve(listen=address) as second:
        after = ping(second.address).json()
        expect(second.address == address, "not the port that was asked for")
        expect(after["identity"] != before["identity"], "the same identity")
        expect(after["incarnation"] > before["incarnation"], "incarnation does not grow")
        old = ping(address, "--identity", before["identity"], count=1)
        expect(old.code == 1 and "STALE" in old.err, old.err)


@case("an identity that is none is refused on the command line")
def _():
    done = ping("127.0.0.1:1", "--identity", "xyz", "--timeout-ms", str(int(DEADLINE_S * 1000)))
    expect(done.code == 2 and '"xyz"' in done.err, done.err)


main()
