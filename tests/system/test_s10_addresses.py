# SPDX-License-Identifier: Apache-2.0
"""S10, addresses of every shape: what works, what is refused, and what is never published."""
import socket

from yuebing import Serve, case, expect, folder, main, new_secret, ping, run


def free_port():
    """A port that nobody has at the moment; who uses it tries again with another."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve_on(shape):
    """Start a server on a shape with {p} for a port; returns it, started, and the port."""
    for _ in range(20):
        port = free_port()
        server = Serve(listen=shape.format(p=port))
        try:
            return server.begin(), port
        except Exception:
            if not any("address in use" in line for line in server.log):
                raise
    raise AssertionError("no free port in 20 attempts")


@case("v4, v6, brackets and names listen where they say, and answer there")
def _():
    for shape, bound in (("127.0.0.1:{p}", "127.0.0.1:{p}"), ("[::1]:{p}", "[::1]:{p}"),
                         ("localhost:{p}", "127.0.0.1:{p}"), ("127.0.0.1:0", None),
                         ("[::1]:0", None)):
        server, port = serve_on(shape)
        with server:
            address = server.address
            if bound:
                expect(address == bound.format(p=port), f"{shape}: bound {address}")
            expect(server.ready["published"] == address, f"{shape}: {server.ready}")
            expect(ping(address).code == 0, f"{shape}: no answer at {address}")
            if "localhost" in shape:
                expect(ping(f"localhost:{port}").code == 0, "no answer at localhost")


@case("a name whose first address refuses is reached at its second one")
def _():
    with Serve(listen="[::1]:0") as server:
        done = ping(f"localhost:{server.port}")
        expect(done.code == 0, done.err)


@case("without a port the default one is meant")
def _():
    for shape in ("::1", "[::1]", "localhost", "127.0.0.1"):
        server = Serve(listen=shape)
        try:
            server.begin()
        except Exception:
            expect(any("address in use" in line and ":14700" in line for line in server.log),
                   f"{shape}: {server.log}")
            continue
        with server:
            expect(server.port == 14700, f"{shape}: {server.address}")
            expect(ping(shape).code == 0, f"{shape}: no answer")


@case("nonsense refuses to start and to ping, with the offending text and an exit code")
def _():
    for text in ("host:99999", "host:abc", "1.2.3", "[::1", "127.0.0.1:", "a b", "::1:x",
                 "[fe80::1%nosuch0]:1", "fe80::1", "256.1.1.1:5", "http://127.0.0.1:1"):
        for done in (run("serve", "--listen", text), run("ping", text)):
            expect(done.code not in (0, None) and done.out == "", f"{text!r} was accepted")
            expect(text.split("%")[0].strip("[") in done.err, f"{text!r} is not in {done.err!r}")
    for done in (run("serve", "--listen", ""), run("ping", "")):
        expect(done.code == 2, f"an empty address: {done.code} {done.err}")


@case("an address of no interface of this machine is refused by name")
def _():
    done = run("serve", "--listen", "192.0.2.1:0", "--insecure")
    expect(done.code != 0 and "192.0.2.1" in done.err, f"{done.code} {done.err}")


@case("every interface needs a secret or --insecure")
def _():
    for text in ("0.0.0.0:0", ":0", "*:0", "[::]:0"):
        done = run("serve", "--listen", text)
        expect(done.code == 2, f"{text}: exit code {done.code}")
        expect("--secret-file" in done.err and "--insecure" in done.err, done.err)


@case("a wildcard is bound but never published, and nobody can connect to it")
def _():
    with folder() as path:
        secret = new_secret(path + "/secret")
        for text in ("0.0.0.0:0", ":0", "*:0", "[::]:0"):
            for trust in (["--insecure"], ["--secret-file", secret]):
                with Serve(*trust, listen=text) as server:
                    ready = server.ready
                    expect(ready["published"] is None, f"{text}: published {ready}")
                    words = trust if trust[0] == "--secret-file" else []
                    expect(ping(f"127.0.0.1:{server.port}", *words).code == 0, f"{text}: v4")
                    if text != "0.0.0.0:0":
                        expect(ping(f"[::1]:{server.port}", *words).code == 0, f"{text}: v6")
                    refused = ping(ready["address"], *words)
                    expect(refused.code == 2, f"{ready['address']}: {refused.code}")
    done = ping("127.0.0.1:0")
    expect(done.code == 2, f"port 0: {done.code} {done.err}")


@case("a client on v4 and one on v6 are served by the same process")
def _():
    with Serve("--insecure", listen=":0") as server:
        a = ping(f"127.0.0.1:{server.port}").json()
        b = ping(f"[::1]:{server.port}").json()
        expect(a["identity"] == b["identity"] == server.ready["identity"], f"{a} {b}")


main()
