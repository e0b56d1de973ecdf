# SPDX-License-Identifier: Apache-2.0
"""yuebing.Store.fetch(): blocks come one by one; every byte is compared."""
import asyncio
import gc
import os
import select
import threading

import pytest
import yuebing
from conftest import Process, pattern, stop, until

SIZE = 40001
KEYS = [f"k{i}" for i in range(48)]


def value(index):
    return pattern(SIZE, index)


def rooms(count=len(KEYS)):
    return [bytearray(SIZE) for _ in range(count)]


@pytest.fixture(scope="module")
def cluster():
    """A directory and a node; its lease outlives that the node is stopped for a while."""
    directory = Process("directory", "--json", "--listen", "127.0.0.1:0",
                        "--directory-lease-ms", "60000")
    node = Process("node", "--json", "--directory", directory.address, "--memory", "64m")
    with yuebing.Store(directory.address) as store:
        until(lambda: store.send({"first": b"block"}).wait()[0].status in ("OK", "EXISTS"),
              "the node serves")
        assert all(one.ok for one in store.put_many({k: value(i) for i, k in enumerate(KEYS)}))
    yield directory.address, node
    node.stop()
    directory.stop()


@pytest.fixture
def blocks(cluster):
    with yuebing.Store(cluster[0]) as store:
        yield store


@pytest.fixture
def stopped(cluster):
    """A store that has found its way, and its node, which does nothing until go_on()."""
    with yuebing.Store(cluster[0], shared_memory=False) as store:
        assert store.get("k0") == value(0)
        stop(cluster[1].process)
        try:
            yield store, cluster[1]
        finally:
            cluster[1].go_on()


def test_it_says_where_blocks_are_and_brings_each_once(blocks):
    buffers = rooms(len(KEYS) + 1)
    fetch = blocks.fetch([*KEYS, "missing"], buffers)
    assert fetch.tiers == ("dram",) * len(KEYS) + (None,) and len(fetch) == len(KEYS) + 1
    assert all(one is None or one >= 0 for one in fetch.ready_in)
    seen = {}
    for index, result in fetch:
        assert index not in seen and fetch.result(index) == result
        seen[index] = result
        if index < len(KEYS):
            assert result.ok and result.bytes == SIZE and bytes(buffers[index]) == value(index)
    assert sorted(seen) == list(range(len(KEYS) + 1))
    assert seen[len(KEYS)].status == "NOT_FOUND"
    assert fetch.next() is None and fetch.next(0) is None
    assert fetch.wait() == [seen[i] for i in range(len(KEYS) + 1)]


def test_an_ordered_one_keeps_the_lists_order(blocks):
    buffers = rooms()
    fetch = blocks.fetch(KEYS, buffers, ordered=True, window=3)
    assert [index for index, _ in fetch] == list(range(len(KEYS)))
    assert [bytes(one) for one in buffers] == [value(i) for i in range(len(KEYS))]


def test_what_was_not_handed_out_when_all_had_ended_still_is(blocks):
    fetch = blocks.fetch(KEYS, rooms())
    first = fetch.next()
    assert all(one.ok for one in fetch.wait()) and fetch.done()
    assert sorted([first, *(index for index, _ in fetch)]) == list(range(len(KEYS)))
    assert fetch.next() is None


def test_a_range_of_each(blocks):
    buffers = [bytearray(100) for _ in KEYS]
    offsets = [i * 7 for i in range(len(KEYS))]
    assert [one.bytes for one in blocks.fetch(KEYS, buffers, offsets).wait()] == [100] * len(KEYS)
    assert [bytes(one) for one in buffers] == [value(i)[i * 7:i * 7 + 100]
                                               for i in range(len(KEYS))]


def test_one_key_is_cancelled_one_is_late_and_the_others_come(stopped):
    store, node = stopped
    buffers = rooms(4)
    fetch = store.fetch(KEYS[:4], buffers, timeout=60, timeouts=[None, None, 0.05, None])
    with pytest.raises(TimeoutError):
        fetch.next(0)
    with pytest.raises(TimeoutError):
        fetch.wait(0)
    assert not fetch.done() and [fetch.result(i) for i in (0, 1, 3)] == [None] * 3
    fetch.cancel(1)
    ended = {fetch.next(): None, fetch.next(): None}
    assert sorted(ended) == [1, 2]
    assert fetch.result(1).status == "CANCELLED" and fetch.result(2).status == "TIMED_OUT"
    node.go_on()
    assert sorted(index for index, _ in fetch) == [0, 3]
    assert [one.status for one in fetch.wait()] == ["OK", "CANCELLED", "TIMED_OUT", "OK"]
    assert [bytes(buffers[i]) for i in (0, 3)] == [value(0), value(3)]
    assert bytes(buffers[1]) == bytes(buffers[2]) == bytes(SIZE)


def test_all_are_cancelled_and_their_memory_is_left_alone(stopped):
    store, node = stopped
    buffers = rooms(8)
    fetch = store.fetch(KEYS[:8], buffers, timeout=60)
    fetch.cancel()
    assert {one.status for one in fetch.wait()} == {"CANCELLED"}
    node.go_on()
    assert store.get("k7") == value(7)
    assert buffers == rooms(8)


def test_one_that_is_dropped_ends_before_its_memory_goes(stopped):
    store, _ = stopped
    for _ in range(20):
        store.fetch(KEYS[:2], rooms(2), timeout=60)
    gc.collect()
    fetch = store.fetch(KEYS[:2], rooms(2), timeout=60)
    store.close()
    assert sorted(index for index, _ in fetch) == [0, 1]


def test_its_descriptor_tells_of_each_key(blocks):
    fetch = blocks.fetch(KEYS, rooms())
    ended = 0
    while ended < len(KEYS):
        assert select.select([fetch.fileno()], [], [], 60)[0]
        os.read(fetch.fileno(), 8)
        try:
            while fetch.next(0) is not None:
                ended += 1
        except TimeoutError:
            pass
    assert all(one.ok for one in fetch.wait())


def test_a_coroutine_takes_them_as_they_come(blocks):
    async def use():
        buffers = rooms()
        fetch = blocks.fetch(KEYS, buffers)
        seen = []
        async for index, result in fetch:
            assert result.ok and bytes(buffers[index]) == value(index)
            seen.append(index)
        assert sorted(seen) == list(range(len(KEYS)))
        assert [one.bytes for one in await fetch] == [SIZE] * len(KEYS)
        assert select.select([fetch.fileno()], [], [], 0)[0]  # As of any batch that has ended.

    asyncio.run(use())


def test_several_coroutines_in_two_loops_wait_for_one(stopped):
    store, node = stopped
    fetch = store.fetch(KEYS[:8], rooms(8), timeout=60)
    outcomes, waiting = [], threading.Semaphore(0)

    async def all_of_it():
        waiting.release()
        outcomes.append(await fetch)

    async def use():
        await asyncio.gather(*(all_of_it() for _ in range(3)))

    threads = [threading.Thread(target=asyncio.run, args=(use(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        waiting.acquire()
    node.go_on()
    for thread in threads:
        thread.join(60)
    assert [[one.ok for one in outcome] for outcome in outcomes] == [[True] * 8] * 6


def test_a_coroutine_that_is_cancelled_cancels_what_it_awaits(stopped):
    store, _ = stopped
    fetch = store.fetch(KEYS[:2], rooms(2), timeout=60)

    async def use():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(fetch, 0.05)

    asyncio.run(use())
    assert {one.status for one in fetch.wait()} == {"CANCELLED"}


def test_threads_share_one(blocks):
    buffers = rooms()
    fetch = blocks.fetch(KEYS, buffers)
    taken = [[] for _ in range(6)]

    def take(mine):
        for index, result in fetch:
            mine.append(index if result.ok and bytes(buffers[index]) == value(index) else None)

    threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
    threads.append(threading.Thread(target=fetch.wait))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(sum(taken, [])) == list(range(len(KEYS)))


def test_bad_arguments(blocks):
    fetch = blocks.fetch(["k0"], rooms(1))
    for call in (lambda: fetch.result(1), lambda: fetch.cancel(1)):
        with pytest.raises(IndexError):
            call()
    with pytest.raises(TypeError):
        fetch.result("0")
    for bad in ({"timeouts": [1.0, 2.0]}, {"timeouts": [0]}, {"timeout": -1.0}):
        with pytest.raises(ValueError):
            blocks.fetch(["k0"], rooms(1), **bad)
    for bad in ({"window": -1}, {"no_such": 1}):
        with pytest.raises(TypeError):
            blocks.fetch(["k0"], rooms(1), **bad)
    with pytest.raises(yuebing.Error):
        blocks.fetch([], [])
    with pytest.raises((BufferError, TypeError)):
        blocks.fetch(["k0"], [b"read only"])
