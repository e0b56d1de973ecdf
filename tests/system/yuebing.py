# SPDX-License-Identifier: Apache-2.0
"""What the system tests stand on: real processes, raw sockets, our own bytes.

    @case("a sentence that must hold")
    def _():
        with Serve("--listen", "127.0.0.1:0") as server:
            ...
    main()

Every wait has a deadline and waits for a condition. A test prints TAP and ends
with exit status 0 if every case passed. The program is $YUEBING.
"""
import collections
import contextlib
import ctypes
import errno
import glob
import hashlib
import hmac
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

PROGRAM = os.environ["YUEBING"]
LONG = os.environ.get("YUEBING_TEST_LONG", "") not in ("", "0")
# How much slower than a plain build one with a sanitizer may be: tests/system/meson.build sets it.
# Deadlines are given for a plain build, and made longer by this here, in store.py and engines.py.
SLOWER = int(os.environ.get("YUEBING_SLOWER", "1"))
DEADLINE_S = 30.0 * SLOWER  # For what takes milliseconds on a machine that is not busy.

_cases = []


class Failed(Exception):
    """What had to hold does not."""


class Skipped(Exception):
    """This machine does not allow what the case is about."""


def case(sentence):
    def add(function):
        _cases.append((sentence, function))
        return function
    return add


def main():
    print(f"1..{len(_cases)}", flush=True)
    bad = 0
    for number, (sentence, function) in enumerate(_cases, 1):
        begun = time.monotonic()
        try:
            function()
            print(f"ok {number} - {sentence}", flush=True)
        except Skipped as why:
            print(f"ok {number} - {sentence} # SKIP {why}", flush=True)
        except Exception:  # Whatever it is, the case failed and the next one runs.
            bad += 1
            print(f"not ok {number} - {sentence}", flush=True)
            for line in traceback.format_exc().splitlines():
                print(f"# {line}", flush=True)
        print(f"# {time.monotonic() - begun:.1f} s", flush=True)
    sys.exit(1 if bad else 0)


def expect(condition, text):
    if not condition:
        raise Failed(text)


def machine_is_busy():
    """Whether others want the processors, too: whoever waits for one is late, whatever we do."""
    return os.getloadavg()[0] > os.cpu_count()


def expect_soon(took_s, within_s, text):
    """A duration, which is judged where nobody else is busy; `within_s` is of a plain build."""
    expect(took_s < within_s * SLOWER or machine_is_busy(), f"{text}: {took_s:.2f} s")


def until(condition, text, seconds=DEADLINE_S):
    """Ask again and again until `condition` returns something true; return that."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise Failed(f"not within {seconds} s: {text}")
        pause.wait(0.01)


def window(seconds):
    """Let a span of time pass in which something is measured."""
    threading.Event().wait(seconds)


# ---- processes -----------------------------------------------------------------------------

def environment():
    """The environment without settings of whoever runs the tests."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith("YUEBING")}


class Thread:
    """One thread of a child that stands still while all others run: what ptrace(2) can do.

        with Thread(tid):
            ...
    """
    DETACH, SEIZE, INTERRUPT, WALL = 17, 0x4206, 0x4207, 0x40000000

    def __init__(self, tid):
        self.tid = tid
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long] * 4

    def __enter__(self):
        if self.libc.ptrace(self.SEIZE, self.tid, 0, 0) != 0:
            if ctypes.get_errno() == errno.ESRCH:
                raise ProcessLookupError("it has ended")
            raise Skipped(f"a child's thread may not be stopped: "
                          f"{os.strerror(ctypes.get_errno())}")
        expect(self.libc.ptrace(self.INTERRUPT, self.tid, 0, 0) == 0, "it is interrupted")
        os.waitpid(self.tid, self.WALL)
        return self

    def __exit__(self, *_):
        self.libc.ptrace(self.DETACH, self.tid, 0, 0)


def threads(pid):
    """All but the first one."""
    return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task") if int(name) != pid)


class Result:
    def __init__(self, code, out, err, pid=0):
        self.code, self.out, self.err, self.pid = code, out, err, pid

    def json(self):
        return json.loads(self.out)


def run(*words, timeout=DEADLINE_S):
    with subprocess.Popen([PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
        return Result(process.returncode, out, err, process.pid)


def demo_folders(pid):
    """What the demo with that process number has in /tmp: others may run beside it."""
    return set(glob.glob(f"/tmp/yuebing-demo.{pid}.*"))


def ping(address, *words, count=3):
    return run("ping", address, "--count", str(count), "--interval-ms", "0", "--json", *words)


class Serve:
    """A process that serves, ready to be spoken to. Its port answers the handshake, ping and echo
    in every role; a directory is the one that has no peers of its own, so what is counted is what
    the test does."""

    def __init__(self, *words, listen="127.0.0.1:0", command="directory", more=()):
        self.process = subprocess.Popen(
            [PROGRAM, command, "--json", "--listen", listen, *words],
            env={**environment(), **dict(more)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.log = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self.ready = None

    def _read_log(self):
        for line in self.process.stderr:
            with self._changed:
                self.log.append(line.rstrip("\n"))
                self._changed.notify_all()

    def begin(self, seconds=DEADLINE_S):
        """Wait for the line that says where it listens."""
        readable, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if readable else ""
        if not line:
            self.kill()
            raise Failed(f"serve did not start: {self.log}")
        self.ready = json.loads(line)
        return self

    def __enter__(self):
        return self if self.ready else self.begin()

    def __exit__(self, kind, *_):
        ended = self.process.poll() is not None  # By itself: that is why, whatever was seen of it.
        code = self.stop()
        if kind is None or ended:
            expect(code == 0, f"serve ended with {code}: {self.log[-60:]}")

    @property
    def address(self):
        return self.ready["address"]

    @property
    def port(self):
        return int(self.address.rsplit(":", 1)[1])

    def wait_log(self, pattern, seconds=DEADLINE_S):
        with self._changed:
            if not self._changed.wait_for(
                    lambda: any(re.search(pattern, line) for line in self.log), seconds):
                raise Failed(f"no line like {pattern}: {self.log[-20:]}")

    def stop(self):
        """Ask it to end and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, seconds=DEADLINE_S):
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"serve does not end: {self.log[-20:]}") from None
        self._reader.join(DEADLINE_S)
        self.process.stdout.close()
        return code

    def kill(self):
        self.process.kill()
        self.process.wait()

    def metrics(self):
        """Return {"yuebing_net_refused_total{reason=\"magic\"}": 1.0, ...} of now."""
        with self._changed:
            begin = len(self.log)
            self.process.send_signal(signal.SIGUSR1)
            if not self._changed.wait_for(lambda: "# EOF" in self.log[begin:], DEADLINE_S):
                raise Failed(f"no metrics: {self.log[-5:]}")
            lines = self.log[begin:]
        found = {}
        for line in lines:
            match = re.fullmatch(r"(yuebing_\S+(?:\{[^}]*\})?) (\S+)", line)
            if match:
                found[match[1]] = float(match[2])
        return found

    def refused(self, reason):
        return self.metrics().get(f'yuebing_net_refused_total{{reason="{reason}"}}', 0)

    def open_count(self):
        return self.metrics().get("yuebing_net_open", 0)

    def threads(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            return int(re.search(r"^Threads:\s+(\d+)", status.read(), re.M)[1])


ESTABLISHED, TIME_WAIT = 1, 6
TcpSocket = collections.namedtuple("TcpSocket", "port peer_port state unread_bytes inode")


def tcp_sockets():
    """The TCP sockets of this network namespace, those that listen included. The kernel hands its
    table out in pieces, and while others come and go it has rows again: each pair counts once."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in list(table)[1:]]
    return [TcpSocket(*(int(end.rsplit(":", 1)[1], 16) for end in ends), int(row[3], 16),
                      int(row[4].split(":")[1], 16), row[9])
            for ends, row in {(row[1], row[2]): row for row in rows}.items()]


def connections(port, state=ESTABLISHED):
    """How many TCP sockets on this port of ours are in a state; the accepting side counts."""
    return sum((one.port, one.state) == (port, state) for one in tcp_sockets())


def queued(port):
    """Bytes that lie in the kernel for the owner of this port."""
    return sum(one.unread_bytes for one in tcp_sockets() if one.port == port)


def cpu_seconds(pid):
    """CPU time that all threads of a process have used; exact where the kernel tells it."""
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as told:
                total += int(told.read().split()[0])
        return total / 1e9
    except (FileNotFoundError, IndexError):
        with open(f"/proc/{pid}/stat", encoding="ascii") as told:
            fields = told.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="yuebing-test.")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def new_secret(path):
    done = run("secret", "new", "--out", path)
    expect(done.code == 0, done.err)
    return path


class Key:
    """One derived key: what a peer may be, its id and the key itself."""

    def __init__(self, secret, role, tenant, path):
        words = ["--tenant", tenant] if tenant else []
        done = run("secret", "derive", "--role", role, *words, "--secret-file", secret,
                   "--out", path)
        expect(done.code == 0, done.err)
        self.path, self.role, self.tenant = path, role, tenant
        with open(path, encoding="ascii") as lines:
            words = next(line for line in lines if line.startswith("key ")).split()
        self.id, self.key = bytes.fromhex(words[3]), bytes.fromhex(words[4])


# ---- bytes on the wire: a second implementation, checked against tests/wire/golden -----------

ROLES = {"client": 1, "node": 2, "directory": 3, "admin": 4}
HELLO, CHALLENGE, PROOF, WELCOME, REFUSAL = range(1, 6)
PING, ECHO = 1, 2
MAGIC = b"YUEBING\0"
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/net/wire/wire.h"),
          encoding="utf-8") as _header:
    SCHEMA = int(re.search(r"YB_WIRE_SCHEMA UINT64_C\((\w+)\)", _header.read())[1], 16)


def crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82f63b78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = crc32c_table()


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xff]
    return crc ^ 0xffffffff


def preface(kind, length, version_min=1, version_max=1, magic=MAGIC):
    return struct.pack("<8sHHHH", magic, kind, version_min, version_max, length)


def hello_body(role="client", tenant="default", key_id=bytes(8), **other):
    values = {"schema": SCHEMA, "features": 0, "incarnation": 1, "seed_check": 0, "wall_ns": 1,
              "credit_bytes": 1 << 26, "data_bytes_max": 1 << 40, "generation": 1, "stripe": 0,
              "identity": os.urandom(16),
              "cluster": bytes(16), "boot": bytes(16), "nonce": os.urandom(32),
              "credit_requests": 256, "body_bytes_max": 1 << 20, "lane": 0, "lane_class": 0,
              "software": "test"} | other
    tenant, software = tenant.encode(), values["software"].encode()
    return struct.pack(
        "<QQQQQQQQ16s16s16s8s32sIIBBBBHH", values["schema"], values["features"],
        values["incarnation"], values["seed_check"], values["wall_ns"], values["credit_bytes"],
        values["data_bytes_max"], values["generation"], values["identity"], values["cluster"],
        values["boot"], key_id, values["nonce"], values["credit_requests"],
        values["body_bytes_max"], ROLES[role], values["lane"], values["lane_class"],
        values["stripe"], len(tenant), len(software)) + tenant + software


def hello(version_min=1, version_max=1, magic=MAGIC, **values):
    body = hello_body(**values)
    return preface(HELLO, len(body), version_min, version_max, magic) + body


def frame(kind, body=b"", request_id=1, body_bytes=None, data_bytes=0):
    head = struct.pack(
        "<IBBHHxxiIIQQQ16sQQQ4x", 0x31464259, 1, 0, kind, 0, 0,
        len(body) if body_bytes is None else body_bytes, 0, data_bytes, request_id, 10_000_000,
        bytes(16), 0, 0, 0)
    return head + struct.pack("<I", crc32c(head)) + body


class Refused(Exception):
    def __init__(self, status, reason, version_min, version_max, text):
        super().__init__(f"{status} {reason} {text}")
        self.status, self.reason, self.text = status, reason, text
        self.versions = (version_min, version_max)


class Wire:
    """A socket that speaks for itself."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host.strip("[]"), int(port)), DEADLINE_S)
        self.socket.settimeout(DEADLINE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def receive(self, length):
        data = b""
        while len(data) < length:
            piece = self.socket.recv(length - len(data))
            if not piece:
                raise EOFError(f"closed after {len(data)} of {length} bytes")
            data += piece
        return data

    def message(self):
        """Return (type, all bytes) of the next handshake message; raise Refused for a refusal."""
        head = self.receive(16)
        magic, kind, low, high, length = struct.unpack("<8sHHHH", head)
        expect(magic == MAGIC, f"not our magic: {magic}")
        body = self.receive(length)
        if kind == REFUSAL:
            status, low, high, reason, text_bytes = struct.unpack("<iHHHH", body[:12])
            raise Refused(status, reason, low, high, body[16:16 + text_bytes].decode())
        return kind, head + body

    def until_closed(self, seconds=DEADLINE_S):
        """Read to the end; returns what came. A reset is an end too."""
        self.socket.settimeout(seconds)
        data = b""
        try:
            while piece := self.socket.recv(65536):
                data += piece
        except ConnectionResetError:
            pass
        except TimeoutError:
            raise Failed(f"not closed within {seconds} s") from None
        return data

    def handshake(self, key=None, proof_key=None, **values):
        """The connecting side; `proof_key` may differ from what was claimed. Returns the peer's
        identity, or raises Refused."""
        first = hello(key_id=key.id if key else bytes(8), **values)
        self.send(first)
        _, challenge = self.message()
        head, tail = preface(PROOF, 48), struct.pack("<qQ", 0, (1 << 64) - 1)
        proof = bytes(32)
        if key:
            transcript = hashlib.sha256(first + challenge + head + proof + tail).digest()
            proof = hmac.new(proof_key or key.key, b"yuebing proof client" + transcript
                             + bytes(32), hashlib.sha256).digest()
        self.send(head + proof + tail)
        kind, _ = self.message()
        expect(kind == WELCOME, f"message {kind} instead of a welcome")
        return challenge[16 + 56:16 + 72]

    def echo(self, body, request_id=1):
        """Send one echo and return the body of the answer."""
        self.send(frame(ECHO, body, request_id))
        head = self.receive(96)
        expect(crc32c(head[:92]) == struct.unpack("<I", head[92:])[0], "bad CRC in a reply")
        status, body_bytes = struct.unpack("<iI", head[12:20])
        expect(status == 0, f"echo answered {status}")
        return self.receive(body_bytes)


def split(address):
    host, port = address.rsplit(":", 1)
    return host.strip("[]"), int(port)
