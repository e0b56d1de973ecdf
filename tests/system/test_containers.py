# SPDX-License-Identifier: Apache-2.0
"""Two containers of one host that cannot share: right bytes over TCP, and the reason is said."""
import contextlib
import json
import os
import subprocess

from engines import BY_ADDRESS, DRIVER, PATIENCE_MS, Engine, Ways
from yuebing import (DEADLINE_S, PROGRAM, Skipped, case, environment, expect, folder, main,
                     new_secret)

BYTES = 8 << 20
ITEMS = 32
BOTH = 3
# A container, as far as memory is concerned: its own processes, user ids, mounts and IPC.
OWN_TMP = ("sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh")
CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child",
             "--mount-proc", "--mount", "--ipc", *OWN_TMP)
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def need(*words):
    """Skip the case where a command does not work."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S,
                              check=False)
    except FileNotFoundError:
        raise Skipped(f"there is no {words[0]}") from None
    if done.returncode != 0:
        raise Skipped(f"{words[0]}: {done.stderr.strip()[:200]}")


def doctor(wrapped, address, *options):
    """What `yuebing doctor --peer` says there of shared memory with the engine at `address`."""
    done = subprocess.run([*wrapped, PROGRAM, "doctor", "--peer", address, "--json", *options],
                          capture_output=True, text=True, timeout=DEADLINE_S,
                          env=environment(), check=False)
    expect(done.returncode == 0, f"doctor ended with {done.returncode}: {done.stderr}")
    rows = {row["what"]: row for row in json.loads(done.stdout)}
    expect(rows["peer"]["state"] == "ok" and rows["tcp to the peer"]["state"] == "ok", f"{rows}")
    return rows["shared memory with the peer"]


def move(source, target, peer, local, remote):
    """Read and write everything, compare every byte, and return which ways the items went."""
    ways = []
    for seed, op in enumerate(("read", "write"), 20):
        giver, taker = ((target, remote), (source, local))[::1 if op == "read" else -1]
        giver[0].do("fill", giver[1], seed, 0, BYTES)
        taker[0].do("set", taker[1], 0xee, 0, BYTES)
        batch = source.submit(peer, op, local, BYTES, BY_ADDRESS, items=ITEMS,
                              offset=target.addresses[remote])
        source.do("wait", batch, PATIENCE_MS)
        ways.append(source.ways(batch, ITEMS))
        found = source.end(batch)
        expect(found == ("OK", ITEMS, 0, 0, BYTES), f"{op}: {found}")
        source.do("check", local, seed, 0, BYTES)
        target.do("check", remote, seed, 0, BYTES)
    return ways


def furnish(*engines):
    for engine in engines:
        engine.memory("ordinary", BYTES)
        engine.register("ordinary")
        engine.alloc("shared", BYTES)


def expect_told(source, peer, row, words, remedy):
    """The engine's statistics, its probe and the doctor give the same reason."""
    for told in (source.ask(peer).why_not_shm, source.path(peer, "shm")["why"], row["found"]):
        expect(words in told, f"`{words}` is not in `{told}`")
    expect(remedy in row["advice"], f"`{remedy}` is not in `{row['advice']}`")


ALL_TCP, ALL_SHM = Ways(ITEMS, 0, 0), Ways(0, ITEMS, 0)


@case("processes of one container share all memory, and the doctor finds nothing to say")
def _():
    with Engine(paths=BOTH) as target, Engine(paths=BOTH) as source:
        furnish(target, source)
        peer = source.open(target.address)
        row = doctor((), target.address)
        if source.ask(peer).why_not_shm:
            raise Skipped(f"this machine itself forbids it: {row['found']}")
        expect(row["state"] == "ok" and row["advice"] == "", f"{row}")
        for local, remote in (("ordinary", "ordinary"), ("shared", "ordinary"),
                              ("ordinary", "shared"), ("shared", "shared")):
            expect(move(source, target, peer, local, remote) == [ALL_SHM, ALL_SHM], "other ways")


@case("containers with their own processes: ordinary memory over TCP, shared memory by mapping")
def _():
    need(*CONTAINER, "true")
    with Engine(CONTAINER, paths=BOTH) as target, Engine(CONTAINER, paths=BOTH) as source:
        furnish(target, source)
        peer = source.open(target.address)
        expect(source.ask(peer).shm, "memory that could be mapped is not")
        row = doctor(CONTAINER, target.address)
        expect(row["state"] == "degraded", f"{row}")
        expect_told(source, peer, row, "another pid namespace", "--pid=container")
        expect(move(source, target, peer, "ordinary", "ordinary") == [ALL_TCP, ALL_TCP], "ways")
        expect(move(source, target, peer, "shared", "shared") == [ALL_SHM, ALL_SHM], "ways")
        # Who reads needs leave; a mapped source needs none.
        expect(move(source, target, peer, "ordinary", "shared") == [ALL_SHM, ALL_TCP], "ways")
        expect(move(source, target, peer, "shared", "ordinary") == [ALL_TCP, ALL_SHM], "ways")


@case("a process outside sees into the container, which does not see it")
def _():
    need(*CONTAINER, "true")
    with Engine(CONTAINER, paths=BOTH) as inside, Engine(paths=BOTH) as outside:
        furnish(inside, outside)
        peer = outside.open(inside.address)
        back = inside.open(outside.address)
        expect(outside.ask(peer).shm and inside.ask(back).shm, "nothing is mapped")
        expect("another pid namespace" in inside.ask(back).why_not_shm, "no reason inside")
        if "cannot read this process" not in outside.ask(peer).why_not_shm:
            raise Skipped(f"reading is forbidden outside, too: {outside.ask(peer).why_not_shm}")
        expect(move(outside, inside, peer, "ordinary", "ordinary") == [ALL_SHM, ALL_TCP], "ways")
        expect(move(inside, outside, back, "ordinary", "ordinary") == [ALL_TCP, ALL_SHM], "ways")


@case("processes of two users share nothing")
def _():
    need(*NOBODY, "test", "-x", DRIVER)
    with Engine(NOBODY, paths=BOTH) as target, Engine(paths=BOTH) as source:
        furnish(target, source)
        peer = source.open(target.address)
        expect(not source.ask(peer).shm, "another user's memory is shared")
        row = doctor((), target.address)
        expect(row["state"] == "missing", f"{row}")
        expect_told(source, peer, row, f"user 65534, this process as user {os.geteuid()}",
                    "same user")
        for memory in ("ordinary", "shared"):
            expect(move(source, target, peer, memory, memory) == [ALL_TCP, ALL_TCP], "ways")
        expect(source.path(peer, "shm")["slices"] == 0, "something was tried there")


@contextlib.contextmanager
def two_networks():
    """Two network namespaces with a cable between them: their names and addresses."""
    names = [f"yb{os.getpid()}{end}" for end in "ab"]
    addresses = ["10.213.77.1", "10.213.77.2"]
    try:
        for name in names:
            need("ip", "netns", "add", name)
        need("ip", "link", "add", "yb0", "netns", names[0], "type", "veth",
             "peer", "name", "yb0", "netns", names[1])
        for name, address in zip(names, addresses):
            need("ip", "-n", name, "address", "add", address + "/24", "dev", "yb0")
            need("ip", "-n", name, "link", "set", "yb0", "up")
            need("ip", "-n", name, "link", "set", "lo", "up")
        yield [(("ip", "netns", "exec", name), address) for name, address in zip(names, addresses)]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@case("containers of two networks of one host find each other by TCP and share nothing")
def _():
    need(*CONTAINER, "true")
    with folder() as path, two_networks() as ((there, address), (here, _)):
        secret = new_secret(path + "/secret")
        there, here = (*there, *CONTAINER), (*here, *CONTAINER)
        with Engine(there, paths=BOTH, secret=secret, listen=f"{address}:0") as target, \
                Engine(here, paths=BOTH, secret=secret) as source:
            furnish(target, source)
            peer = source.open(target.address)
            expect(not source.ask(peer).shm, "memory is shared")
            row = doctor(here, target.address, "--secret-file", secret)
            expect(row["state"] == "missing", f"{row}")
            expect_told(source, peer, row, "not in this network namespace", "--network=container")
            for memory in ("ordinary", "shared"):
                expect(move(source, target, peer, memory, memory) == [ALL_TCP, ALL_TCP], "ways")


@case("a peer that is not there, or has no transfer engine, is a finding too")
def _():
    done = subprocess.run([PROGRAM, "doctor", "--peer", "127.0.0.1:1", "--json"],
                          capture_output=True, text=True, timeout=DEADLINE_S,
                          env=environment(), check=False)
    row = next(row for row in json.loads(done.stdout) if row["what"] == "peer")
    expect(done.returncode == 1 and row["state"] == "missing", f"{done.returncode} {row}")
    with Engine(paths=1) as target:
        row = doctor((), target.address)
        expect(row["state"] == "missing" and "does not speak" in row["found"], f"{row}")


main()
