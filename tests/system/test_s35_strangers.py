# SPDX-License-Identifier: Apache-2.0
"""S35, strangers and versions: a clear answer or a close, at once, and a counter for each."""
import contextlib
import os
import pathlib
import random
import socket
import ssl
import time

from yuebing import (ECHO, HELLO, LONG, SCHEMA, SLOWER, Key, Refused, Serve, Wire, case, expect,
                     folder, frame, hello, main, new_secret, ping, preface, run, until)

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "wire" / "golden"
ANSWER_S = 1.0 * SLOWER
SEED = int(os.environ.get("YUEBING_TEST_SEED", "0")) or time.time_ns() & 0xffffffff


def golden(name):
    lines = (GOLDEN / f"{name}.hex").read_text(encoding="ascii").splitlines()
    return bytes.fromhex("".join(line for line in lines if not line.startswith("#")))


def refusal(server, data=None, **values):
    """Send a first message and return the Refused that comes back."""
    with Wire(server.address) as wire:
        wire.socket.settimeout(ANSWER_S)
        wire.send(hello(**values) if data is None else data)
        try:
            wire.message()
        except Refused as refused:
            wire.until_closed(ANSWER_S)
            return refused
        raise AssertionError("it was let in")


def counted(server, reason, count):
    until(lambda: server.refused(reason) == count, f"{count} refused for {reason}")


@case("what the tests send is what the golden bytes say")
def _():
    made = hello(schema=0x0123456789abcdef, features=5, incarnation=7,
                 seed_check=0x1122334455667788, wall_ns=1700000000123456789,
                 data_bytes_max=1 << 48, generation=9,
                 identity=bytes(range(16)), boot=bytes(range(0xf0, 0x100)),
                 key_id=bytes(range(1, 9)), nonce=bytes(range(0x40, 0x60)), credit_requests=1024,
                 lane=1, lane_class=1, stripe=3, tenant="team-a", software="yuebing 0.1.0")
    expect(made[16:] == golden("hello-client"), made[16:].hex())
    expect(preface(HELLO, 179) == golden("preface-hello"), "preface")


@case("a version too old or too new is refused with both ranges in the text")
def _():
    with Serve() as server:
        for number, version in enumerate((0, 2, 101), 1):
            refused = refusal(server, version_min=version, version_max=version)
            expect(refused.status == -16, f"version {version}: {refused}")
            expect(refused.versions == (1, 1), f"its own range: {refused.versions}")
            expect("1" in refused.text and str(version) in refused.text, refused.text)
            counted(server, "version", number)
        with Wire(server.address) as wire:  # A newer peer that still speaks ours is welcome.
            wire.send(hello(version_min=1, version_max=101))
            kind, challenge = wire.message()
            expect(kind == 2 and challenge[16 + 144:16 + 146] == b"\1\0", "not version 1")


@case("another build with the same version and other messages is refused with both schemas")
def _():
    with Serve() as server:
        refused = refusal(server, schema=SCHEMA ^ 1)
        expect(refused.status == -16, f"{refused}")
        for word in (f"{SCHEMA:016x}", f"{SCHEMA ^ 1:016x}", "the same build of Yuebing on both"):
            expect(word in refused.text, refused.text)
        counted(server, "version", 1)
        expect(ping(server.address).code == 0, "the same build is refused")


@case("a wrong magic is dropped without a word")
def _():
    with Serve() as server:
        with Wire(server.address) as wire:
            wire.send(hello(magic=b"YUEBINH\0"))
            expect(wire.until_closed(ANSWER_S) == b"", "it was answered")
        counted(server, "magic", 1)


@case("an HTTP client is told in HTTP that this is no HTTP port")
def _():
    with Serve() as server:
        with Wire(server.address) as wire:
            wire.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = wire.until_closed(ANSWER_S)
        expect(answer.startswith(b"HTTP/1.1 400 ") and b"Yuebing" in answer, str(answer))
        counted(server, "http", 1)


@case("a TLS client gets an alert where TLS is off, and a plain one words where it is on")
def _():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with Serve() as server:
        with Wire(server.address) as wire, contextlib.suppress(ssl.SSLError, OSError):
            context.wrap_socket(wire.socket)
            raise AssertionError("a TLS handshake with a port that speaks no TLS")
        counted(server, "tls", 1)
    with Serve("--tls", "on") as server:
        refused = refusal(server)
        expect("--tls on" in refused.text, refused.text)
        counted(server, "tls_required", 1)
        with Wire(server.address) as wire:
            wire.send(b"GET / HTTP/1.1\r\n\r\n")
            expect(wire.until_closed(ANSWER_S).startswith(b"HTTP/1.1 400 "), "no HTTP answer")
        done = ping(server.address, "--tls", "on")
        expect(done.code == 0 and done.json()["tls"] is True, done.err)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname = False
        old.verify_mode = ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with socket.create_connection(("127.0.0.1", server.port), 10) as plain:
            try:
                old.wrap_socket(plain)
            except (ssl.SSLError, OSError):
                pass
            else:
                raise AssertionError("TLS 1.2 was accepted")
        expect(ping(server.address, "--tls", "on").code == 0, "not served afterwards")


@case("random bytes for a while harm nobody and are counted")
def _():
    print(f"# seed {SEED} (repeat with YUEBING_TEST_SEED)")
    dice = random.Random(SEED)
    end = time.monotonic() + (60 if LONG else 2)
    sent = 0
    with Serve("--log-lines-per-second", "1", "--net-handshake-timeout-ms", "500") as server:
        while time.monotonic() < end:
            with Wire(server.address) as wire:
                # Some begin like us, so that every message's decoder sees noise.
                start = dice.choice((b"", b"", hello()[:dice.randrange(1, 60)], hello()))
                noise = bytes(dice.getrandbits(8) for _ in range(dice.randrange(1, 3000)))
                with contextlib.suppress(ConnectionError):
                    wire.send(start + noise)
                if dice.random() < 0.2:
                    wire.until_closed(10)
            sent += 1
        done = ping(server.address)
        expect(done.code == 0, f"after {sent} strangers: {done.err}")
        expect(server.refused("magic") > 0 and server.refused("malformed") > 0, "not counted")
        print(f"# {sent} strangers")


@case("noise behind a good handshake ends that connection only")
def _():
    dice = random.Random(SEED)
    with Serve("--log-lines-per-second", "1") as server, Wire(server.address) as good:
        good.handshake()
        for number in range(50):
            with Wire(server.address) as wire:
                wire.handshake()
                data = bytearray(frame(ECHO, b"x" * 100))
                if number % 2:
                    data[dice.randrange(96)] ^= 1 << dice.randrange(8)
                else:
                    data = bytes(dice.getrandbits(8) for _ in range(dice.randrange(96, 500)))
                wire.send(data)
                wire.until_closed()
            expect(good.echo(b"%d" % number, number + 1) == b"%d" % number, "the other suffered")
        counts = server.metrics()
        expect(counts.get('yuebing_net_closed_total{status="PROTOCOL"}', 0) == 50,
               f"{[line for line in counts.items() if 'closed' in line[0]]}")


@case("with a secret only the right key for the right role and tenant gets in")
def _():
    with folder() as path:
        secret = new_secret(path + "/secret")
        a = Key(secret, "client", "team-a", path + "/a")
        b = Key(secret, "client", "team-b", path + "/b")
        node = Key(secret, "node", "", path + "/node")
        other = Key(new_secret(path + "/other"), "client", "team-a", path + "/other-a")
        with Serve("--secret-file", secret) as server:
            def attempt(reason, key=None, **values):
                with Wire(server.address) as wire:
                    wire.socket.settimeout(ANSWER_S)
                    try:
                        wire.handshake(key, **values)
                    except Refused as refused:
                        expect(refused.status == -15, f"{reason}: {refused}")
                        return
                    raise AssertionError(f"it was let in, expected {reason}")

            attempt("no_credential", tenant="team-a")
            counted(server, "no_credential", 1)
            attempt("unknown_key", other, tenant="team-a")
            attempt("unknown_key", a, tenant="team-b")
            attempt("unknown_key", a, role="node", tenant="")
            counted(server, "unknown_key", 3)
            attempt("bad_credential", a, proof_key=bytes(32), tenant="team-a")
            attempt("bad_credential", b, proof_key=a.key, tenant="team-b")
            attempt("bad_credential", node, proof_key=a.key, role="node", tenant="")
            counted(server, "bad_credential", 3)
            expect(server.metrics().get("yuebing_net_frames_received_total", 0) == 0,
                   "a stranger's frame was read")
            with Wire(server.address) as wire:
                wire.handshake(a, tenant="team-a")
                expect(wire.echo(b"in") == b"in", "the right key is of no use")
            with Wire(server.address) as wire:
                wire.handshake(node, role="node", tenant="")


@case("the program refuses in the peer's words, names the remedy, and never guesses a tenant")
def _():
    with folder() as path:
        secret = new_secret(path + "/secret")
        other = new_secret(path + "/other")
        key = Key(secret, "client", "team-a", path + "/a")
        with Serve("--secret-file", secret) as server:
            for words in ([], ["--secret-file", other]):
                done = ping(server.address, *words, count=1)
                expect(done.code == 1 and "DENIED" in done.err, done.err)
                expect("secret" in done.err, done.err)
            done = ping(server.address, "--secret-file", key.path, "--tenant", "team-b", count=1)
            expect(done.code != 0 and "team-b" in done.err, done.err)
            done = ping(server.address, "--secret-file", key.path, "--tenant", "team-a")
            expect(done.code == 0 and done.json()["authenticated"] is True, done.err)
            expect(done.json()["tenant"] == "team-a" and done.json()["role"] == "client",
                   str(done.json()))
        with Serve() as server:  # And a client with a secret does not talk to one without.
            done = ping(server.address, "--secret-file", secret, count=1)
            expect(done.code == 1, f"{done.code} {done.out}")


@case("by default only this machine is served, and beyond it nothing without a secret")
def _():
    done = run("config", "--json")
    listen = next(row for row in done.json() if row["name"] == "net.listen")
    expect(listen["default"].startswith("127.0.0.1:"), str(listen))
    for address in ("0.0.0.0:0", "[::]:0", "192.0.2.1:0"):
        done = run("serve", "--listen", address)
        expect(done.code == 2 and "without a secret" in done.err, f"{address}: {done.err}")


main()
