# SPDX-License-Identifier: Apache-2.0
"""Transfer engines as processes of their own, told what to do line by line.

    with Engine() as target, Engine() as source:
        region = target.memory("x", 1 << 20).register("x")
        peer = source.open(target.address)
        ...

`ms` is a deadline in a plain build: one with a sanitizer has SLOWER times as long.
The driver is $YUEBING_TRANSFER_DRIVER; its lines are described at its top.
"""
import collections
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import termios

from relay import Relay  # noqa: F401: the tests of transfers find it here.
from yuebing import DEADLINE_S, SLOWER, Failed, environment, expect

DRIVER = os.environ["YUEBING_TRANSFER_DRIVER"]
PATHS = os.environ.get("YUEBING_TRANSFER_PATHS", "1")  # Of transfer.h; 1 is TCP.
ONLY_TCP = PATHS == "1"
BY_ADDRESS = (1 << 64) - 1
PATIENCE_MS = int(2000 * DEADLINE_S)  # Of commands that wait for what is about to happen.
Poll = collections.namedtuple("Poll", "status ended failed in_doubt bytes")
Loads = collections.namedtuple("Loads", "ok failed wrong late")
Ways = collections.namedtuple("Ways", "tcp shm none")
Probe = collections.namedtuple("Probe", "identity tcp shm why_not_shm")
PIDFD_OPEN, PIDFD_GETFD = 434, 438  # The same numbers on every architecture.


def sockets(pid, family, kind):
    """The connected sockets of a process, as descriptors of ours that mean the same ones."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = libc.syscall(PIDFD_OPEN, pid, 0)
    expect(process >= 0, f"no pidfd of {pid}: {os.strerror(ctypes.get_errno())}")
    found = []
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    continue
            except FileNotFoundError:
                continue
            copy = libc.syscall(PIDFD_GETFD, process, int(name), 0)
            if copy < 0:
                continue
            one = socket.socket(fileno=copy)
            try:
                one.getpeername()
            except OSError:
                one.close()
                continue
            if (one.family, one.type) == (family, kind):
                found.append(one)
            else:
                one.close()
    finally:
        os.close(process)
    return found


def unread(one):
    """Bytes that have arrived on a socket and were not read."""
    return struct.unpack("i", fcntl.ioctl(one, termios.FIONREAD, bytes(4)))[0]


def cut_unix(pid):
    """Cut the sockets by which an engine and its peers of the same host know each other."""
    found = sockets(pid, socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for one in found:
        one.shutdown(socket.SHUT_RDWR)
        one.close()
    return len(found)


class Engine:
    """A process with one engine."""

    def __init__(self, wrapped=(), **options):
        """`wrapped`: a command that runs the driver, such as unshare with its options."""
        self.process = subprocess.Popen(
            [*wrapped, DRIVER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(), text=True, bufsize=1)
        self.pid = self.process.pid
        self.ended = False
        self.addresses = {}
        options = {"paths": PATHS} | options
        words = [word for pair in options.items() for word in map(str, pair)]
        self.answer = self.ask_raw("create", *words)
        self.address = self.answer[3:] if self.answer.startswith("ok ") else None

    def __enter__(self):
        expect(self.address, f"no engine: {self.answer}")
        return self

    def __exit__(self, kind, *_):
        if self.ended:  # It was killed, or told to quit.
            return
        if self.process.poll() is not None:  # By itself: that is why, whatever its peers saw.
            self.close_pipes()
            raise Failed(f"the driver at {self.address} ended with {self.process.returncode}: "
                         f"{self.errors[-4000:]}")
        if kind is not None:
            self.kill()
            return
        code = self.quit()
        expect(code == 0, f"the driver ended with {code}: {self.errors}")

    def close_pipes(self):
        self.ended = True
        self.process.wait()
        self.errors = self.process.stderr.read()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                pipe.close()
            except BrokenPipeError:
                pass

    def send(self, *words):
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()

    def receive(self, seconds=3 * DEADLINE_S):
        readable, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if readable else ""
        if not line:
            self.kill()
            raise Failed(f"no answer from {self.pid}: {self.errors[-2000:]}")
        return line.rstrip("\n")

    def ask_raw(self, *words, seconds=3 * DEADLINE_S):
        self.send(*words)
        return self.receive(seconds)

    def do(self, *words):
        """Carry out what has to go well, and return what stands behind the `ok`."""
        answer = self.ask_raw(*words)
        expect(answer == "ok" or answer.startswith("ok "), f"{words}: {answer}")
        return answer[3:]

    # ---- its commands ----

    def memory(self, name, length, seed=None):
        self.addresses[name] = int(self.do("memory", name, length))
        if seed is not None:
            self.do("fill", name, seed, 0, length)
        return self.addresses[name]

    def alloc(self, name, length, seed=None):
        self.addresses[name] = int(self.do("alloc", name, length))
        if seed is not None:
            self.do("fill", name, seed, 0, length)
        return self.addresses[name]

    def register(self, name):
        return int(self.do("register", name))

    def open(self, address):
        return int(self.do("open", address))

    def identity(self, peer):
        return self.do("ask", peer, PATIENCE_MS).split()[0]

    def ask(self, peer):
        words = self.do("ask", peer, PATIENCE_MS).split(" ", 3)
        return Probe(words[0], int(words[2]) & 1 != 0, int(words[2]) & 2 != 0, words[3])

    def path(self, peer, name):
        """What the statistics say of one way to a peer."""
        for one in self.stats()["peers"]:
            if one["peer"] == peer:
                return next(path for path in one["paths"] if path["path"] == name)
        raise Failed(f"no peer {peer} in the statistics")

    def metric(self, name):
        return sum(one["value"] for one in self.stats()["metrics"] if one["name"] == name)

    def ways(self, batch, items):
        return Ways(*map(int, self.do("ways", batch, items).split()))

    def submit(self, peer, op, name, length, region, offset=0, begin=0, items=1, ms=20000,
               notify=None):
        words = [notify] if notify else []
        return int(self.do("submit", peer, ms * SLOWER, op, name, begin, length, region, offset,
                           items, *words))

    def poll(self, batch):
        words = self.do("poll", batch).split()
        return Poll(words[0], *map(int, words[1:]))

    def end(self, batch):
        """Wait, look, release."""
        self.do("wait", batch, PATIENCE_MS)
        found = self.poll(batch)
        self.do("release", batch)
        return found

    def run(self, peer, op, name, length, region, **more):
        return self.end(self.submit(peer, op, name, length, region, **more))

    def load(self, peer, threads, op, region, length, seed, ms=2000, step=0):
        self.do("load", peer, threads, op, region, length, ms * SLOWER, seed, step)

    def loads(self, peer=0):
        return Loads(*map(int, self.do("loads", peer).split()))

    def unload(self):
        return Loads(*map(int, self.do("unload").split()))

    def stats(self):
        return json.loads(self.do("stats"))

    # ---- the process ----

    def quit(self, seconds=DEADLINE_S):
        self.send("quit")
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"the driver does not end: {self.errors[-2000:]}") from None
        self.close_pipes()
        return self.process.returncode

    def kill(self):
        self.process.kill()
        self.close_pipes()

    def stop(self):
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)

    def rss(self):
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as told:
            return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))
