# SPDX-License-Identifier: Apache-2.0
"""A store of real processes, and clients in processes of their own, told what to do line by line.

    with Store(nodes=2) as store, store.client() as a, store.client() as b:
        a.put("k:0-99", bytes=4096).all("OK")
        b.get("k:0-99", bytes=4096).all("OK")      # Every byte was compared.

A command's `ms` is its deadline in a plain build: one with a sanitizer has SLOWER times as long.
The driver is $YUEBING_STORE_DRIVER; its lines are described at its top.
"""
import collections
import json
import os
import select
import signal
import subprocess

from yuebing import DEADLINE_S, SLOWER, Failed, Serve, environment, expect, run, until

DRIVER = os.environ["YUEBING_STORE_DRIVER"]
LEASE_MS_MAX = 60000  # Of the settings.
PLAIN_LEASE_MS = 3000  # So that nobody loses it on a busy machine.
LEASE_MS = PLAIN_LEASE_MS * SLOWER
LEASE_S = LEASE_MS / 1000.0
# A handshake goes through several threads of both sides, each of which may wait for a processor.
PATIENT = ("--net-handshake-timeout-ms", str(3000 * SLOWER))
MIB = 1 << 20
TIERS = ("none", "device", "dram", "ssd", "object")  # As enum yb_client_tier has them.


def spread(runs):
    """[[value, how many], ...] as a list."""
    return [value for value, count in runs for _ in range(count)]


def stop_process(pid):
    """Stop it, and return when all its threads stand: the signal alone does not wait for them."""
    os.kill(pid, signal.SIGSTOP)

    def stands(task):
        try:
            with open(f"/proc/{pid}/task/{task}/stat", encoding="utf-8") as file:
                return file.read().rsplit(")", 1)[1].split()[0] in "TtZX"
        except FileNotFoundError:
            return True  # That thread has ended.

    until(lambda: all(stands(task) for task in os.listdir(f"/proc/{pid}/task")), "it stands still")



class Answer(dict):
    """One line of a driver."""

    @property
    def status(self):
        return self["status"]

    @property
    def items(self):
        """The status of each key, in order."""
        return spread(self["items"])

    @property
    def counted(self):
        found = collections.Counter()
        for value, count in self["items"]:
            found[value] += count
        return found

    @property
    def sizes(self):
        return spread(self["sizes"])

    @property
    def versions(self):
        return spread(self["versions"])

    @property
    def replicas(self):
        return spread(self["replicas"])

    @property
    def tiers(self):
        """Of a fetch: where each of them lay."""
        return [TIERS[value] for value in spread(self["tiers"])]

    def sound(self):
        """What always holds: what was read is right, and no guard was touched."""
        expect(self.get("wrong", 0) == 0 and self.get("broken", 0) == 0, f"wrong bytes: {self}")
        return self

    def all(self, *statuses):
        """Every key ended as one of these."""
        self.sound()
        expect(self.status == "OK" and set(self.counted) <= set(statuses),
               f"expected {statuses}: {str(dict(self))[:1500]}")
        return self

    def each(self, *statuses):
        """The keys ended so, one by one."""
        self.sound()
        expect(self.status == "OK" and self.items == list(statuses),
               f"expected {statuses}: {self}")
        return self


class Client:
    """A process with clients; number 0 joins at once."""

    def __init__(self, directory, joined=True, **options):
        self.directory = directory
        self.process = subprocess.Popen(
            [DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(), text=True, bufsize=1)
        self.pid = self.process.pid
        self.killed = False
        self.errors = ""
        if joined:
            answer = self.open(**options)
            if answer.status != "OK":
                self.kill()
                raise Failed(f"cannot join {directory}: {answer}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.killed or self.process.poll() is not None:
            self.close_pipes()
            expect(self.killed or self.process.returncode == 0,
                   f"the driver ended with {self.process.returncode}: {self.errors[-2000:]}")
            return
        if kind is not None:
            self.kill()
            return
        code = self.quit()
        expect(code == 0, f"the driver ended with {code}: {self.errors[-2000:]}")

    def close_pipes(self):
        self.process.wait()
        if not self.process.stderr.closed:
            self.errors = self.process.stderr.read()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                pipe.close()
            except BrokenPipeError:
                pass

    def send(self, verb, ms=10000, **words):
        words["ms"] = ms * SLOWER
        pairs = [f"{name}={int(value) if isinstance(value, bool) else value}"
                 for name, value in words.items() if value is not None]
        self.process.stdin.write(" ".join([verb, *pairs]) + "\n")
        self.process.stdin.flush()

    def receive(self, seconds=2 * DEADLINE_S):
        readable, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if readable else ""
        if not line:
            self.kill()
            raise Failed(f"no answer from {self.pid}: {self.errors[-2000:]}")
        return Answer(json.loads(line))

    def ask(self, verb, **words):
        self.send(verb, **words)
        return self.receive()

    # ---- its commands ----

    def open(self, c=0, **options):
        return self.ask("open", c=c, directory=self.directory, **options)

    def put(self, keys, **words):
        return self.ask("put", keys=keys, **words)

    def get(self, keys, **words):
        return self.ask("get", keys=keys, **words)

    def fetch(self, keys, **words):
        return self.ask("fetch", keys=keys, **words)

    def exist(self, keys, **words):
        return self.ask("exist", keys=keys, **words)

    def remove(self, keys, **words):
        return self.ask("remove", keys=keys, **words)

    def loop(self, number, op, keys, **words):
        expect(self.ask("loop", id=number, op=op, keys=keys, **words).status == "OK", "loop")

    def loops(self, number, **words):
        return self.ask("loops", id=number, **words)

    def unloop(self, number):
        return self.ask("unloop", id=number)

    def nodes(self, c=0):
        return self.ask("nodes", c=c)["nodes"]

    def counters(self, **words):
        return self.ask("counters", **words)

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
        self.killed = True
        self.process.kill()
        self.close_pipes()

    def stop(self):
        stop_process(self.pid)

    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)


class Role(Serve):
    """A directory or a node in a process of its own."""

    def __init__(self, *words, **more):
        super().__init__(*words, **more)
        self.killed = False
        self.stopped = False

    def __exit__(self, kind, *_):
        if self.killed:
            return
        if self.stopped:
            self.go_on()
        if kind is not None and self.process.poll() is None:
            self.kill()
            return
        super().__exit__(kind)

    def pause(self):
        self.stopped = True
        stop_process(self.pid)

    def go_on(self):
        self.stopped = False
        os.kill(self.pid, signal.SIGCONT)

    def kill(self):
        self.killed = True
        super().kill()

    def metric(self, name, **labels):
        """The sum of what has this name and these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(value for key, value in self.metrics().items()
                   if key.split("{")[0] == name and all(one in key for one in wanted))


def directory(*words, listen="127.0.0.1:0", lease_ms=PLAIN_LEASE_MS):
    """`lease_ms`: in a plain build."""
    lease_ms = min(lease_ms * SLOWER, LEASE_MS_MAX)
    return Role("--directory-lease-ms", str(lease_ms), *PATIENT, *words, listen=listen,
                command="directory")


def node(where, *words, name="n", memory="64m", listen="127.0.0.1:0"):
    return Role("--directory", where, "--name", name, "--memory", memory, *PATIENT, *words,
                listen=listen, command="node")


class Store:
    """A directory and nodes n0, n1, ...; `words` go to every node."""

    def __init__(self, nodes=1, memory="64m", words=(), directory_words=(),
                 lease_ms=PLAIN_LEASE_MS):
        self.directory = directory(*directory_words, lease_ms=lease_ms)
        self.nodes = []
        try:
            self.directory.begin()
            self.nodes = [self.node(f"n{i}", *words, memory=memory) for i in range(nodes)]
            for one in self.nodes:
                one.begin()
            self.wait_members(nodes)
        except BaseException:
            for one in (*self.nodes, self.directory):
                one.kill()
            raise

    def node(self, name, *words, memory="64m", listen="127.0.0.1:0"):
        """Another node, which is not waited for."""
        return node(self.directory.address, *words, name=name, memory=memory, listen=listen)

    def client(self, **options):
        return Client(self.directory.address, **options)

    def wait_members(self, count):
        with self.client() as client:
            def serve():
                found = client.nodes()
                return len(found) == count and all(one["state"] == "serving" for one in found)
            until(serve, f"{count} nodes serve")

    def command(self, *words):
        """What a command prints."""
        done = run(*words, "--directory", self.directory.address)
        expect(done.code == 0, f"{words}: {done}")
        return done.out

    def explain(self, key):
        return json.loads(self.command("explain", key, "--json"))

    def metric(self, name, **labels):
        return sum(one.metric(name, **labels) for one in self.nodes if not one.killed)

    def used(self):
        return {part: self.metric(f"yuebing_node_{part}_bytes")
                for part in ("live", "in_flight", "ungranted", "quarantined")}

    def __enter__(self):
        return self

    def __exit__(self, kind, *more):
        trouble = None
        for one in (*self.nodes, self.directory):
            try:
                one.__exit__(kind, *more)
            except Failed as failed:
                trouble = trouble or failed
                one.kill()
        if trouble and kind is None:
            raise trouble
