#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A cluster under load for $YUEBING_SOAK_MINUTES: nothing may grow that has no reason to, and no
byte may be wrong.

A store with all tiers, a conductor and two engines; conversations with common beginnings, asked at
the instance that the conductor names; an onlooker at the dashboard. Memory and disk hold a part of
them, the object store all. Then memory, descriptors and threads of each process are looked at
twenty times, and the last five are held against the first five.
"""
import contextlib
import http.client
import json
import os
import random
import statistics
import sys
import threading
import time

from engine_process import ask, call, engine, numbers
from yuebing import Failed, Serve, case, expect, folder, main

MINUTES = float(os.environ.get("YUEBING_SOAK_MINUTES", "0.2"))
LOOKS, EDGE = 20, 5
WARM_SHARE = 0.3
SESSIONS, BEGINNINGS, ASKERS, TOKENS_MAX = 200, 20, 6, 4000
# How much a process may have more at the end: caches of the C library's allocator come and go.
MORE_BYTES, MORE_SHARE = 8 << 20, 0.05
MORE_DESCRIPTORS, MORE_THREADS = 6, 3
SEED = int(os.environ.get("YUEBING_TEST_SEED", "0")) or int(time.time())


class Conversations:
    """Prompts that share their beginnings: any turn of any conversation. There are only so many, so
    that what is kept of them in a store without end has an end."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        beginnings = [self.some(512) for _ in range(BEGINNINGS)]
        self.sessions = [self.random.choice(beginnings) + self.some(TOKENS_MAX - 512)
                         for _ in range(SESSIONS)]

    def next(self):
        with self.lock:
            session = self.random.choice(self.sessions)
            return session[:self.random.randrange(200, TOKENS_MAX)]

    def some(self, count):
        return [self.random.randrange(1 << 16) for _ in range(count)]


class Load:
    def __init__(self, conductor, engines):
        self.conductor, self.engines = conductor, {e.ready["http"]: e for e in engines}
        self.talk = Conversations(SEED)
        self.stop = threading.Event()
        self.asked, self.elsewhere, self.failed = 0, 0, []
        self.threads = [threading.Thread(target=self.run) for _ in range(ASKERS)]
        self.threads.append(threading.Thread(target=self.look))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def one(self):
        tokens = self.talk.next()
        code, text = call(self.conductor, "POST", "/v1/schedule",
                          json.dumps({"model": "llama-3-70b", "tokens": tokens}))
        where, more = None, {}
        if code == 200:
            told = json.loads(text)
            where = told["prefill_address"]
            more = {"decision": told["decision"], "conductor": 0}
        server = self.engines.get(where)
        if server is None:  # A conductor that knows nobody yet.
            self.elsewhere += 1
            server, more = random.choice(list(self.engines.values())), {}
        ask(server, tokens, 4, **more)
        self.asked += 1

    def run(self):
        while not self.stop.is_set():
            try:
                self.one()
            except Exception as why:  # All of them are told at the end.
                self.failed.append(repr(why))
                if len(self.failed) > 20:
                    return

    def look(self):
        """Somebody has the dashboard open."""
        connection = http.client.HTTPConnection(self.conductor.ready["http"], timeout=30)
        connection.request("GET", "/v1/cluster/stream")
        stream = connection.getresponse()
        while not self.stop.is_set() and stream.read1(65536):
            pass
        connection.close()


def instance(store, conductor, name):
    return engine(store.address, "--name", name, "--block-bytes", "16384",
                  "--conductor", f"http://{conductor.ready['http']}")


def kernel_threads(pid):
    """Those that io_uring has in a process: they come and go as the kernel finds right."""
    found = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), \
                open(f"/proc/{pid}/task/{task}/comm", encoding="utf-8") as told:
            found += told.read().startswith("iou-")
    return found


def measure(name, server):
    """Bytes of its own, descriptors, threads."""
    code = server.process.poll()
    expect(code is None, f"{name} has ended with {code}: {server.log[-20:]}")
    with open(f"/proc/{server.pid}/status", encoding="ascii") as status:
        fields = dict(line.split(":", 1) for line in status)
    return {"bytes": int(fields["RssAnon"].split()[0]) * 1024,
            "descriptors": len(os.listdir(f"/proc/{server.pid}/fd")),
            "threads": int(fields["Threads"]) - kernel_threads(server.pid)}


def edges(looks, what):
    return (statistics.median(look[what] for look in looks[:EDGE]),
            statistics.median(look[what] for look in looks[-EDGE:]))


def judge(name, looks):
    before, after = edges(looks, "bytes")
    print(f"# {name}: {before / 1e6:.1f} MB, then {after / 1e6:.1f} MB; descriptors and threads "
          f"{edges(looks, 'descriptors')} {edges(looks, 'threads')}", flush=True)
    # A short run says that it runs; what grows slowly shows in a long one.
    expect(after <= before * (1 + MORE_SHARE) + MORE_BYTES or MINUTES < 2,
           f"{name}: its memory grew from {before:.0f} to {after:.0f} bytes")
    for what, more in (("descriptors", MORE_DESCRIPTORS), ("threads", MORE_THREADS)):
        before, after = edges(looks, what)
        expect(after <= before + more, f"{name}: its {what} grew from {before} to {after}")


def progress(text):
    if sys.stderr.isatty():
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)


def soak(load, servers):
    looks = {name: [] for name in servers}
    end = time.monotonic() + 60 * MINUTES
    load.stop.wait(60 * MINUTES * WARM_SHARE)
    for number in range(LOOKS):
        load.stop.wait(max(0.0, (end - time.monotonic()) / (LOOKS - number)))
        for name, server in servers.items():
            looks[name].append(measure(name, server))
        progress(f"{number + 1}/{LOOKS}: {load.asked} requests")
    progress("")
    return looks


@case(f"{MINUTES:g} minutes of load: memory, descriptors and threads stay, no byte is wrong")
def _():
    print(f"# seed {SEED} (repeat with YUEBING_TEST_SEED)", flush=True)
    with folder() as data, folder() as objects, \
            Serve("--memory", "32m", "--data-dir", data, "--node-ssd-bytes", "256m",
                  "--object-store", f"file:{objects}", "--node-object-layout", "packed",
                  "--http", "127.0.0.1:0", command="serve") as store, \
            Serve("--http", "127.0.0.1:0", "--directory", store.address, "--http-watch",
                  store.ready["http"], "--block-tokens", "64", command="conductor") as conductor, \
            instance(store, conductor, "one") as one, instance(store, conductor, "two") as two:
        servers = {"store": store, "conductor": conductor, "one": one, "two": two}
        with Load(conductor, (one, two)) as load:
            looks = soak(load, servers)
        expect(not load.failed, f"{len(load.failed)} requests failed: {load.failed[:3]}")
        told = [numbers(server) for server in (one, two)]
        print(f"# {load.asked} requests, {load.elsewhere} that no conductor placed; bytes compared "
              f"{sum(t['verified_bytes'] for t in told)}, tokens loaded "
              f"{sum(t['loaded_tokens'] for t in told)}, computed "
              f"{sum(t['computed_tokens'] for t in told)}", flush=True)
        if load.asked == 0 or sum(t["verified_bytes"] for t in told) == 0:
            raise Failed("nothing happened")
        expect(all(t["wrong_bytes"] == 0 for t in told), f"{told}")
        for name, rows in looks.items():
            judge(name, rows)


main()
