# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python packages stand on: an installed wheel and real processes.

Nothing here imports the source tree: `mooncake` and `yuebing` are what pip installed. Waits are for
conditions, each with a deadline.
"""
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

DEADLINE_S = 60.0
MIB = 1 << 20
SETUP = ("P2PHANDSHAKE", 64 * MIB, 16 * MIB, "tcp", "")


def stop(process):
    """Stop it; it does nothing any more, on no thread, when this returns."""
    process.send_signal(signal.SIGSTOP)

    def stands():
        for task in os.listdir(f"/proc/{process.pid}/task"):
            with open(f"/proc/{process.pid}/task/{task}/stat", encoding="ascii") as file:
                if file.read().rpartition(")")[2].split()[0] != "T":
                    return False
        return True

    until(stands, "all of its threads have stopped")


class Process:
    """One of our programs; it says on its first line where it listens."""

    def __init__(self, *words):
        import yuebing
        program = os.path.join(os.path.dirname(yuebing.__file__), "_bin", "yuebing")
        self.process = subprocess.Popen(
            [program, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.log = []
        threading.Thread(target=self._read, daemon=True).start()
        readable, _, _ = select.select([self.process.stdout], [], [], DEADLINE_S)
        line = self.process.stdout.readline() if readable else ""
        assert line, f"{words} did not start: {self.log}"
        self.address = json.loads(line)["address"]

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.go_on()
        self.process.terminate()
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


def directory():
    return Process("directory", "--json", "--listen", "127.0.0.1:0")


@pytest.fixture(scope="session")
def master():
    """The address of a directory; stores give it memory themselves."""
    process = directory()
    yield process.address
    process.stop()


@pytest.fixture
def own_master():
    """A directory that a test may stop."""
    process = directory()
    yield process
    process.kill()


def set_up(address, segment=64 * MIB, buffer=16 * MIB, **more):
    from mooncake.store import MooncakeDistributedStore
    store = MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", segment, buffer, "tcp", "", address, **more)
    assert code == 0
    return store


@pytest.fixture(scope="session")
def shared_store(master):
    store = set_up(master)
    yield store
    assert store.close() == 0


@pytest.fixture
def store(shared_store):
    """A store that is set up, and empty."""
    shared_store.remove_all(force=True)
    return shared_store


class Memory:
    """Memory with a guard behind it, and its address."""

    GUARD = b"\xa5" * 64

    def __init__(self, size, fill=b""):
        self.size = size
        self.raw = ctypes.create_string_buffer(size + len(self.GUARD))
        self.ptr = ctypes.addressof(self.raw)
        ctypes.memmove(self.ptr + size, self.GUARD, len(self.GUARD))
        ctypes.memmove(self.ptr, fill, min(len(fill), size))

    def bytes(self, offset=0, size=None):
        assert ctypes.string_at(self.ptr + self.size, len(self.GUARD)) == self.GUARD
        return ctypes.string_at(self.ptr + offset, self.size - offset if size is None else size)


@pytest.fixture
def memory():
    return Memory


def pattern(size, seed):
    """Bytes that tell where they belong."""
    block = b"".join((seed * 1000003 + i).to_bytes(8, "little") for i in range(512))
    return (block * (size // len(block) + 1))[:size]


@pytest.fixture(name="pattern")
def _pattern():
    return pattern


def until(condition, text, seconds=DEADLINE_S):
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, text
        threading.Event().wait(0.01)


def python(code, *arguments, timeout=DEADLINE_S, **more):
    """Run Python code in a process of its own; what it prints."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True,
                          timeout=timeout, stdin=subprocess.DEVNULL, **more)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}\n{done.stderr}"
    return done.stdout


def has(program):
    return shutil.which(program) is not None
