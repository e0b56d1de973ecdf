# SPDX-License-Identifier: Apache-2.0
"""Threads, processes and lives: the interpreter's lock is given up, nothing leaks or hangs."""
import gc
import itertools
import os
import resource
import sys
import threading
import time
from concurrent import futures

import numpy
import pytest
import yuebing
from conftest import DEADLINE_S, MIB, SETUP, Memory, pattern, python, set_up, stop, until
from mooncake.engine import TransferEngine
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
from yuebing import _native


def asked(port):
    """Whether something lies at that port of this host that its process has not read."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file][1:]
    return any(row[1].endswith(f":{port:04X}") and not row[4].endswith(":00000000")
               for row in rows)


def called_while_stopped(function, arguments, stopped, port):
    """What it returns when what it asks at that port is stopped until this thread has run.

    A call that kept the interpreter's lock would be back, by its own deadline, before this thread
    could run again, let alone end the stop. From the call until its result is in the list all is
    C: nothing in between gives the lock up in its place.
    """
    results = []
    thread = threading.Thread(
        target=lambda: results.extend(itertools.starmap(function, [arguments])))
    stop(stopped.process)
    try:
        thread.start()
        until(lambda: asked(port), "the question is there")
        waits = not results
    finally:
        stopped.go_on()
    thread.join(DEADLINE_S)
    assert waits and not thread.is_alive(), function.__name__
    return results[0]


def test_a_call_that_waits_lets_others_run(own_master):
    port = int(own_master.address.rpartition(":")[2])
    memory = Memory(4096)
    into = ["k"], [memory.ptr], [4096]
    with set_up(own_master.address, segment=0) as store:
        for function, arguments, answer in [
                (store.is_exist, ("k",), 0),
                (store.batch_is_exist, (["k", "l"],), [0, 0]),
                (store.get_size, ("k",), -704),
                (store.get, ("k",), b""),
                (store.get_batch, (["k"],), [b""]),
                (store.get_buffer, ("k",), None),
                (store.batch_get_buffer, (["k"],), [None]),
                (store.get_into, ("k", memory.ptr, 4096), -704),
                (store.batch_get_into, into, [-704]),
                (store.batch_get_session_start, (["k"],), [-704]),
                (store.remove, ("k",), -704),
                (store.batch_remove, (["k"],), [-704]),
                # Without force it asks the nodes alone, and there are none.
                (store.remove_all, (True,), 0)]:
            assert called_while_stopped(function, arguments, own_master, port) == answer
    store = _native.Store()
    assert called_while_stopped(
        store.setup, ("127.0.0.1", *SETUP, own_master.address), own_master, port) == 0
    store.close()
    client = yuebing.Store(own_master.address)
    for function, arguments, answer in [
            (client._client.run, (2, ["k"], None, None, yuebing.store._options()), 0),
            (client._client.remove_all, (True, 30 * 10**9), 0)]:
        assert called_while_stopped(function, arguments, own_master, port)[0] == answer
    client.close()


def test_a_put_that_nobody_waits_for_any_more_goes_on(own_master):
    """As with an engine that gives up after a second, and leaves the call to its thread."""
    port = int(own_master.address.rpartition(":")[2])
    value = pattern(MIB, 9)
    with set_up(own_master.address) as store, futures.ThreadPoolExecutor(1) as pool:
        stop(own_master.process)
        try:
            put = pool.submit(store.put, "late", value)
            until(lambda: asked(port), "the question is there")
            with pytest.raises(futures.TimeoutError):
                put.result(timeout=0)
        finally:
            own_master.go_on()
        code = put.result(DEADLINE_S)  # After a long stop a lease is over.
        assert code <= 0 and store.get("late") in ([value] if code == 0 else [value, b""])


def test_a_transfer_that_waits_lets_others_run():
    from test_engine import PEER, Stopped
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    with Stopped(PEER) as peer:
        port, address = map(int, peer.process.stdout.readline().split())
        memory = Memory(1 << 20, pattern(1 << 20, 3))
        assert called_while_stopped(
            engine.transfer_sync_write, (f"127.0.0.1:{port}", memory.ptr, address, 1 << 20),
            peer, port) == 0


def test_twelve_threads_share_a_store(store):
    count, failures = 12, []
    config = ReplicateConfig()

    def work(index):
        try:
            source, into = Memory(32 * 4096), Memory(32 * 4096)
            for turn in range(20):
                keys = [f"{index}-{turn}-{i}" for i in range(32)]
                value = pattern(32 * 4096, index * 100 + turn)
                source.raw[:len(value)] = value
                pointers = [source.ptr + i * 4096 for i in range(32)]
                assert store.batch_put_from(keys, pointers, [4096] * 32, config) == [0] * 32
                assert store.batch_is_exist(keys) == [1] * 32
                assert store.batch_get_into(
                    keys, [into.ptr + i * 4096 for i in range(32)], [4096] * 32) == [4096] * 32
                assert into.bytes() == value
                assert store.batch_remove(keys, force=True) == [0] * 32
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_close_while_others_call(master):
    for _ in range(3):
        store = set_up(master)
        store.put("k", b"v")
        stop = threading.Event()
        wrong = []

        def call():
            while not stop.is_set():
                code = store.is_exist("k")
                if code not in (1, 0, -600):
                    wrong.append(code)

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert store.close() == 0
        assert store.is_exist("k") == -600
        stop.set()
        for thread in threads:
            thread.join()
        assert not wrong


def test_a_list_that_changes_meanwhile_does_no_harm(store):
    keys = [f"key-{i}-{'x' * 50}" for i in range(2000)]
    stop = threading.Event()

    def spoil():
        while not stop.is_set():
            keys.clear()
            keys.extend(f"other-{i}-{time.monotonic()}" for i in range(2000))

    thread = threading.Thread(target=spoil)
    thread.start()
    try:
        for _ in range(50):
            assert set(store.batch_is_exist(keys)) <= {0}
    finally:
        stop.set()
        thread.join()


class Spoiler:
    """An index that empties the list that it is in."""

    def __init__(self, target):
        self.target = target

    def __index__(self):
        self.target.clear()
        return 1


def test_an_index_that_changes_its_list_does_no_harm(store):
    numbers = [1] * 100
    numbers[50] = Spoiler(numbers)
    with pytest.raises((IndexError, TypeError)):
        store.batch_put_from(["k"] * 100, numbers, [1] * 100)


# ---- processes ----------------------------------------------------------------------------------

def test_a_forked_child_cannot_use_its_parents_store(store):
    assert store.put("k", b"v") == 0
    child = os.fork()
    if child == 0:
        fine = store.is_exist("k") == -600 and store.get("k") == b"" and store.close() == 0
        os._exit(0 if fine else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert store.get("k") == b"v"


def test_a_forked_child_may_set_up_its_own(master, store):
    assert store.put("k", b"from the parent") == 0
    child = os.fork()
    if child == 0:
        code = 1
        try:
            # The object that it has from its parent is as before setup.
            code = store.setup("127.0.0.1", "P2PHANDSHAKE", 0, MIB, "tcp", "", master)
            code = code or (0 if store.get("k") == b"from the parent" else 2)
            code = code or store.put("l", b"from the child") or store.close()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert store.get("l") == b"from the child"


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_multiprocessing(master, store, how, tmp_path):
    script = tmp_path / "run.py"
    script.write_text("""
import multiprocessing, sys
from mooncake.store import MooncakeDistributedStore

def work(master, key, answers):
    store = MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", master)
    answers.put((code, store.put(key, key.encode()), store.get(key)))

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    answers = context.Queue()
    children = [context.Process(target=work, args=(sys.argv[1], f"mp{i}", answers))
                for i in range(3)]
    for child in children: child.start()
    got = sorted(answers.get(timeout=50) for _ in children)
    for child in children: child.join()
    assert got == [(0, 0, b"mp%d" % i) for i in range(3)], got
    assert all(child.exitcode == 0 for child in children)
""")
    import subprocess
    done = subprocess.run([sys.executable, str(script), master, how], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert store.get("mp1") == b"mp1"


def segments(master):
    """How many nodes the directory counts."""
    import subprocess

    import yuebing
    program = os.path.join(os.path.dirname(yuebing.__file__), "_bin", "yuebing")
    told = subprocess.run([program, "nodes", "--directory", master, "--json"],
                          capture_output=True, text=True, check=True)
    return told.stdout.count('"serving"')


def test_the_last_reference_gives_the_segment_back(own_master):
    store = set_up(own_master.address)
    until(lambda: segments(own_master.address) == 1, "the segment is there")
    del store
    gc.collect()
    until(lambda: segments(own_master.address) == 0, "the segment is gone")


def test_the_end_of_the_program_gives_the_segment_back(own_master):
    told = python("""
import sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
print(store.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 1 << 20, "tcp", "", sys.argv[1]))
print(store.put("k", b"v"))
sys.keep = store
""", own_master.address)
    assert told.split() == ["0", "0"]
    until(lambda: segments(own_master.address) == 0, "the segment is gone")


# ---- leaks --------------------------------------------------------------------------------------

def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_no_reference_is_lost(store):
    memory = Memory(4096, b"x" * 4096)
    key, value = "a key of its own", bytes(100)
    keys, pointers, sizes = [key, key + "2"], [memory.ptr, memory.ptr], [100, 100]
    nested = [[memory.ptr], [memory.ptr]], [[100], [100]]
    number = 2 ** 40 + 1
    config = ReplicateConfig()
    config.group_ids = [key, key]
    things = [key, value, keys, pointers, sizes, *nested, config, config.group_ids, number,
              None, 0, 1, memory.ptr, type(store), ReplicateConfig]

    def calls():
        store.put(key, value)
        store.put_parts(key, value, value)
        store.put_batch(keys, [value, value], config)
        store.batch_put_from(keys, pointers, sizes, config)
        store.batch_put_from_multi_buffers(keys, *nested, config)
        store.batch_put_from(keys, pointers, [1])
        store.batch_is_exist(keys)
        store.is_exist(key)
        store.get(key)
        store.get_batch(keys)
        memoryview(store.get_buffer(key)).release()
        store.batch_get_buffer(keys)
        store.batch_get_into(keys, pointers, sizes)
        store.batch_get_into_multi_buffers(keys, *nested)
        store.get_into_ranges([memory.ptr], [keys], [[[0], [1]]], [[[0], [0]]], [[[1], [1]]])
        store.batch_replica_clear([key + "none"])
        store.register_buffer(0, number)
        for bad in (lambda: store.put(key, number), lambda: store.put(key, value, number),
                    lambda: store.batch_put_from(keys, [key], sizes),
                    lambda: store.put(key, value, wrong=number)):
            with pytest.raises(TypeError):
                bad()

    for _ in range(20):
        calls()
    gc.collect()
    before = [sys.getrefcount(thing) for thing in things]
    for _ in range(100):
        calls()
    gc.collect()
    after = [sys.getrefcount(thing) for thing in things]
    lost = [(thing, b, a) for thing, b, a in zip(things, before, after) if abs(a - b) > 50]
    assert not lost, lost


def test_memory_does_not_grow(store):
    memory = Memory(1 << 16, pattern(1 << 16, 1))
    keys = [f"k{i}" for i in range(8)]
    pointers, sizes = [memory.ptr] * 8, [1000] * 8

    def calls(count):
        for _ in range(count):
            store.batch_put_from(keys, pointers, sizes)
            store.batch_is_exist(keys)
            store.batch_get_into(keys, pointers, sizes)
            store.get("k0")
            bytes(store.get_buffer("k1"))

    calls(1000)
    before = resident()
    calls(2000)  # 10,000 calls.
    assert resident() - before < 8 * MIB


def test_objects_that_were_never_set_up_do_not_leak():
    for _ in range(100):
        MooncakeDistributedStore()
        TransferEngine()
    before = resident()
    for _ in range(1000):
        MooncakeDistributedStore()
        TransferEngine()
    assert resident() - before < 8 * MIB


def test_an_array_of_numbers_is_as_good_as_a_list(store):
    count = 3000
    memory = Memory(count * 8, pattern(count * 8, 2))
    pointers = numpy.arange(memory.ptr, memory.ptr + count * 8, 8, dtype=numpy.uint64)
    keys = [f"n{i}" for i in range(count)]
    assert store.batch_put_from(keys, pointers, numpy.full(count, 8)) == [0] * count
    assert store.batch_get_into(keys, pointers.tolist(), [8] * count) == [8] * count
    with pytest.raises(TypeError):
        store.batch_put_from(["k"], numpy.array([-1]), [8])
