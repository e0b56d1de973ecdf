# SPDX-License-Identifier: Apache-2.0
"""Processes that play ranks, the master they meet at, and the count of what passed.

Every wait has a deadline; a process that misses it is killed, and the case has failed.
"""
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
IMPORT_S = 300.0  # Engines import hundreds of files, and a machine may be busy.
CALL_S = 120.0


class Failed(Exception):
    """Something is not as it must be."""


def need(condition, text):
    if not condition:
        raise Failed(text)


def same(found, wanted, what):
    need(found == wanted, f"{what}: {found!r} where {wanted!r} was expected")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Child:
    """A rank of an engine in a process of its own; see child.py."""

    def __init__(self, harness, module, name, environment):
        read, write = os.pipe()
        self.name = name
        self.log = os.path.join(harness.logs, f"{name}.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, os.path.join(HERE, "child.py"), module, str(write)],
                stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, pass_fds=(write,),
                env=environment, cwd=harness.logs)
        os.close(write)
        self.answers = read
        self.rest = b""
        self.unanswered = 0
        self.send("import", {})

    def send(self, do, arguments):
        self.patience = IMPORT_S if do == "new" else CALL_S  # Engines import more, to begin with.
        line = json.dumps({"do": do, "with": arguments}) + "\n"
        try:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
            self.unanswered += 1
        except BrokenPipeError as error:
            raise Failed(f"{self.name}: has ended ({self.process.poll()}); see {self.log}") \
                from error

    def answer(self, seconds=None):
        seconds = seconds or self.patience
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.answers, selectors.EVENT_READ)
            while b"\n" not in self.rest:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.kill()
                    raise Failed(f"{self.name}: no answer within {seconds:.0f} s; see {self.log}")
                more = os.read(self.answers, 1 << 16)
                if not more:
                    code = self.process.wait(10)
                    raise Failed(f"{self.name}: ended with {code}; see {self.log}")
                self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        found = json.loads(line)
        self.unanswered -= 1
        if "error" in found:
            raise Failed(f"{self.name}: {found['error']}; see {self.log}")
        return found["value"]

    def call(self, do, **arguments):
        while self.unanswered > 0:  # Of a case that failed before it asked.
            with contextlib.suppress(Failed):
                self.answer()
            if self.process.poll() is not None:
                break
        self.send(do, arguments)
        return self.answer()

    def kill(self):
        """As a machine dies: nothing is said to anybody."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)

    def end(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()
        os.close(self.answers)


class Harness:
    def __init__(self, package, master, standin, build, only):
        self.package = os.path.abspath(package)
        self.master_program = os.path.abspath(master)
        self.standin = standin and os.path.abspath(standin)
        self.only = only
        self.known = os.path.join(os.path.abspath(build), "known")
        self.logs = os.path.join(os.path.abspath(build), "logs")
        os.makedirs(self.logs, exist_ok=True)
        self.passed = 0
        self.failed = []
        self.started = 0
        self.children = []

    def environment(self, kind="host", **more):
        found = {k: v for k, v in os.environ.items()
                 if not k.startswith(("MC_", "MOONCAKE_", "VLLM_", "SGLANG_", "LMCACHE_"))}
        found.update({
            "PYTHONPATH": f"{self.package}:{self.known}", "CONNECTORS_KNOWN": self.known,
            "PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1", "MC_FORCE_TCP": "1", "MOONCAKE_PROTOCOL": "tcp",
            "MOONCAKE_REQUESTER_LOCAL_HOSTNAME": "127.0.0.1", "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_CPU_KVCACHE_SPACE": "1", "LMCACHE_TRACK_USAGE": "false",
            "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1", **more})
        if kind == "device":
            found["LD_LIBRARY_PATH"] = self.standin
        return found

    def start(self, module, count, kind="host", **more):
        """Processes that import at the same time."""
        made = []
        for _ in range(count):
            self.started += 1
            made.append(Child(self, module, f"{module}-{kind}-{self.started}",
                              self.environment(kind, **more)))
        self.children += made
        for child in made:
            child.answer(IMPORT_S)
        return made

    def end_all(self):
        for child in self.children:
            child.end()
        self.children = []

    @contextlib.contextmanager
    def master(self):
        """A master with nothing in it; its address."""
        port = free_port()
        self.started += 1
        path = os.path.join(self.logs, f"master-{self.started}.log")
        with open(path, "wb") as log:
            process = subprocess.Popen(
                [self.master_program, f"--rpc_port={port}", f"--metrics_port={free_port()}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=self.environment(), cwd=self.logs)
        try:
            deadline = time.monotonic() + 30
            while True:
                need(process.poll() is None, f"the master ended with {process.poll()}; see {path}")
                with contextlib.suppress(OSError), \
                        socket.create_connection(("127.0.0.1", port), 1):
                    break
                need(time.monotonic() < deadline, f"the master does not listen; see {path}")
                time.sleep(0.05)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    @contextlib.contextmanager
    def case(self, text):
        began = time.monotonic()
        try:
            yield
        except Exception as error:  # A case that failed is told, and the next one is tried.
            if not isinstance(error, Failed):
                traceback.print_exc()
            self.fail(text, f"{error}" if isinstance(error, Failed) else repr(error))
        else:
            self.passed += 1
            print(f"ok      {text} ({time.monotonic() - began:.1f} s)", flush=True)

    def fail(self, text, why):
        self.failed.append(text)
        print(f"FAILED  {text}: {why}", flush=True)

    def group(self, name, function, *arguments):
        """Cases that share processes; where these cannot be started that is a failure too."""
        if self.only and self.only not in name:
            return
        print(f"--- {name}", flush=True)
        try:
            function(self, name, *arguments)
        except Exception as error:
            if not isinstance(error, Failed):
                traceback.print_exc()
            self.fail(f"{name}: start", str(error))
        finally:
            self.end_all()
