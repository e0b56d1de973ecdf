# SPDX-License-Identifier: Apache-2.0
"""A way fails in the middle of a batch: another takes over, every item is moved once."""
import socket

from engines import BY_ADDRESS, PATIENCE_MS, Engine, Failed, cut_unix, sockets, unread
from yuebing import LONG, case, expect, main, until

BYTES = 128 << 20  # Longer than it takes to tell an engine something.
ITEMS = BYTES // (256 << 10)
ROUNDS = 10 if LONG else 2
ATTEMPTS = 20  # To hit the middle of a batch.
EPERM, ENOSYS = 1, 38
BOTH, TCP = 3, 1
COUNTS = ("bytes_read", "bytes_written", "slices", "failures", "switches_away")


class Duo:
    """Two processes, and a batch from one to the other that is met in the middle."""

    def __init__(self, paths, streams=4):
        self.target, self.source = Engine(paths=paths), Engine(paths=paths, streams=streams)
        self.paths = ("tcp",) if paths == TCP else ("shm", "tcp")
        self.seed = 0

    def __enter__(self):
        self.target.__enter__()
        self.source.__enter__()
        self.target.memory("x", BYTES)
        self.source.memory("y", BYTES)
        self.target.register("x")
        self.peer = self.source.open(self.target.address)
        self.source.ask(self.peer)  # All ways are known now.
        return self

    def __exit__(self, *told):
        for engine in (self.source, self.target):
            engine.__exit__(*told)

    def counts(self):
        found = {name: self.source.path(self.peer, name) for name in self.paths}
        return {(name, count): found[name][count] for name in self.paths for count in COUNTS}

    def begin(self, op):
        """Submit a batch, and come back when it has moved something. Returns whether it is under
        way still."""
        self.op = op
        self.seed += 1
        giver, taker = ((self.target, "x"), (self.source, "y"))[::1 if op == "read" else -1]
        giver[0].do("fill", giver[1], self.seed, 0, BYTES)
        taker[0].do("set", taker[1], 0xee, 0, BYTES)
        self.before = self.counts()
        self.batch = self.source.submit(self.peer, op, "y", BYTES, BY_ADDRESS, items=ITEMS,
                                        offset=self.target.addresses["x"], ms=60000,
                                        notify=f"batch-{self.seed}")
        until(lambda: self.source.poll(self.batch).bytes > 0, "something is moved")
        return self.source.poll(self.batch).ended < ITEMS

    def end(self):
        """Whatever happened: every item once, every byte right, the notification once."""
        self.source.do("wait", self.batch, PATIENCE_MS)
        found = self.source.poll(self.batch)
        expect(found == ("OK", ITEMS, 0, 0, BYTES), f"{found}")
        self.ways = self.source.ways(self.batch, ITEMS)
        expect(sum(self.ways) == ITEMS and self.ways.none == 0, f"{self.ways}")
        self.source.do("release", self.batch)
        self.source.do("check", "y", self.seed, 0, BYTES)
        self.target.do("check", "x", self.seed, 0, BYTES)
        told = self.target.do("notification").split()[1]
        expect(told == f"batch-{self.seed}", f"told {told}")
        expect(self.target.ask_raw("notification") == "AGAIN", "told twice")
        after = self.counts()
        self.more = {key: after[key] - self.before[key] for key in after}
        moved = "bytes_read" if self.op == "read" else "bytes_written"
        expect(sum(self.more[name, moved] for name in self.paths) == BYTES, f"{self.more}")
        return self.more


def try_until(attempt, text):
    for _ in range(ATTEMPTS):
        if attempt():
            return
    raise Failed(f"{ATTEMPTS} attempts, and never {text}")


def switched(duo):
    """Whether the batch that has just ended went from shared memory to TCP in the middle."""
    more = duo.end()
    if more["shm", "switches_away"] == 0:
        return False
    expect(more["shm", "failures"] >= more["shm", "switches_away"], f"{more}")
    expect(duo.ways.shm > 0 and duo.ways.tcp > 0, f"{duo.ways}")
    expect(more["shm", "slices"] > 0 and more["tcp", "slices"] > 0, f"{more}")
    return True


@case("the unix socket of shared memory is cut in the middle of a batch")
def _():
    with Duo(BOTH) as duo:
        def attempt(op, victim):
            until(lambda: duo.source.ask(duo.peer).shm, "shared memory is there (again)")
            if not duo.begin(op):
                duo.end()
                return False
            victim.stop()  # In the middle, whatever the scheduler does.
            expect(cut_unix(victim.pid) > 0, "there is no such socket")
            victim.go_on()
            return switched(duo)

        for number in range(ROUNDS):
            for op in ("read", "write"):
                for victim in (duo.source, duo.target):
                    try_until(lambda o=op, v=victim: attempt(o, v), f"a switch, round {number}")
        until(lambda: duo.source.ask(duo.peer).shm, "shared memory is there again")


@case("the kernel begins to forbid process_vm in the middle of a batch")
def _():
    def attempt(op, error):
        with Duo(BOTH) as duo:
            expect(duo.source.ask(duo.peer).shm, "shared memory is not there")
            middle = duo.begin(op)
            # It is the destination's process that copies.
            (duo.source if op == "read" else duo.target).do("forbid", error)
            if not switched(duo) or not middle:
                return False
            begun = duo.begin(op)  # And from then on it is known.
            more = duo.end()
            expect(begun and duo.ways == (ITEMS, 0, 0), f"{duo.ways}")
            expect(more["tcp", "switches_away"] == 0, f"{more}")
            return True

    for op in ("read", "write"):
        for error in (EPERM, ENOSYS):
            try_until(lambda o=op, e=error: attempt(o, e), f"a switch of {op}, {error}")


@case("process_vm is forbidden from the start: ordinary memory goes over TCP, and it is said why")
def _():
    for error, remedy in ((EPERM, "ptrace_scope"), (ENOSYS, "seccomp")):
        with Engine(paths=BOTH) as target, Engine(paths=BOTH) as source:
            length = 4 << 20
            for engine in (target, source):
                engine.do("forbid", error)
            target.memory("x", length, 7)
            target.alloc("z", length, 8)
            source.memory("y", length)
            region = target.register("x")
            peer = source.open(target.address)
            probe = source.ask(peer)
            expect(probe.shm and remedy in probe.why_not_shm, f"{probe}")
            path = source.path(peer, "shm")
            expect(path["state"] == "up" and remedy in path["why"], f"{path}")
            batch = source.submit(peer, "read", "y", length, region, items=16)
            source.do("wait", batch, PATIENCE_MS)
            expect(source.ways(batch, 16) == (16, 0, 0), "ordinary memory by another way")
            expect(source.end(batch).status == "OK", "ordinary memory")
            source.do("check", "y", 7, 0, length)
            # What was allocated as shared memory is mapped, and needs no leave of the kernel.
            batch = source.submit(peer, "read", "y", length, BY_ADDRESS, items=16,
                                  offset=target.addresses["z"])
            source.do("wait", batch, PATIENCE_MS)
            expect(source.ways(batch, 16) == (0, 16, 0), "shared memory by another way")
            expect(source.end(batch).status == "OK", "shared memory")
            source.do("check", "y", 8, 0, length)


@case("all connections are cut in the middle of a batch by shared memory")
def _():
    with Duo(BOTH) as duo:
        for number in range(ROUNDS):
            for op in ("read", "write"):
                until(lambda: duo.source.ask(duo.peer).shm, "shared memory is there")
                duo.begin(op)
                duo.source.stop()
                for one in sockets(duo.source.pid, socket.AF_INET, socket.SOCK_STREAM):
                    one.shutdown(socket.SHUT_RDWR)
                    one.close()
                duo.source.go_on()
                duo.end()
                expect(duo.ways.shm > 0, f"round {number}: {duo.ways}")


@case("one of four connections is cut in the middle of a batch")
def _():
    def attempt(op, number):
        receiver = duo.target if op == "write" else duo.source
        sender = duo.source if op == "write" else duo.target
        resent = duo.source.metric("yuebing_net_retries_total")
        duo.begin(op)
        receiver.stop()  # What has arrived stays where it is.
        full = [one for one in sockets(receiver.pid, socket.AF_INET, socket.SOCK_STREAM)
                if unread(one) > 0]
        if full:
            one = full[number % len(full)]
            here, there = one.getsockname(), one.getpeername()
            if number % 2 == 1:  # The other end of it.
                one = next(each for each in
                           sockets(sender.pid, socket.AF_INET, socket.SOCK_STREAM)
                           if (each.getsockname(), each.getpeername()) == (there, here))
            one.shutdown(socket.SHUT_RDWR)
            del one, full[:-1]
        receiver.go_on()
        more = duo.end()
        expect(more["tcp", "failures"] == 0, f"a cut connection fails no slice: {more}")
        return full and duo.source.metric("yuebing_net_retries_total") > resent

    with Duo(TCP) as duo:
        for number in range(2 * ROUNDS):
            for op in ("read", "write"):
                try_until(lambda o=op, n=number: attempt(o, n), "a slice that goes again")


main()
