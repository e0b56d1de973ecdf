# SPDX-License-Identifier: Apache-2.0
"""The package yuebing against real processes; every byte is compared."""
import asyncio
import select
import threading

import numpy
import pytest
import yuebing
from conftest import MIB, pattern, python


@pytest.fixture
def blocks(master, store):
    with yuebing.Store(master) as client:
        client.remove_all(force=True)
        yield client


def test_put_get_exist_remove(blocks):
    value = pattern(70001, 1)
    assert blocks.put("k", value) is True
    assert blocks.put("k", b"other") is False
    assert blocks.get("k") == value and blocks.exist("k") and blocks.get(b"k") == value
    assert blocks.put("k", b"new", replace=True) and blocks.get("k") == b"new"
    assert blocks.remove("k") and not blocks.remove("k")
    assert blocks.get("k") is None and not blocks.exist("k")
    assert blocks.put("empty", b"") and blocks.get("empty") == b""


def test_many_at_once(blocks):
    values = {f"k{i}": pattern(1 + i * 1001, i) for i in range(200)}
    assert all(one.ok for one in blocks.put_many(values))
    assert blocks.get_many([*values, "missing"]) == [*values.values(), None]
    assert blocks.exist_many([*values, "missing"]) == [True] * 200 + [False]
    rooms = [bytearray(len(v)) for v in values.values()]
    results = blocks.get_many_into(list(values), rooms)
    assert [one.bytes for one in results] == [len(v) for v in values.values()]
    assert [bytes(room) for room in rooms] == list(values.values())
    assert {one.status for one in blocks.remove_many(list(values), force=True)} == {"OK"}


def test_into_a_buffer_of_any_kind(blocks):
    value = pattern(4096, 3)
    blocks.put("k", numpy.frombuffer(value, dtype=numpy.float64))
    room = numpy.zeros(1024, dtype=numpy.float32)
    blocks.register(room)
    assert blocks.get_into("k", room) == 4096 and room.tobytes() == value
    blocks.unregister(room)
    assert blocks.get_into("k", room, offset=4000) == 96
    assert room.tobytes()[:96] == value[4000:]
    assert blocks.get_into("missing", room) is None
    with pytest.raises(yuebing.Error) as caught:
        blocks.get_into("k", bytearray(10))
    assert caught.value.status == "TOO_SMALL"
    with pytest.raises((BufferError, TypeError)):
        blocks.get_into("k", b"read only")
    with pytest.raises(ValueError):
        blocks.get_many_into(["a", "b"], [room])


def test_what_is_listed(blocks):
    blocks.put_many({"a:1": b"x", "a:2": b"yy", "b:1": b"z"})
    assert sorted(one.key for one in blocks.list("a:")) == [b"a:1", b"a:2"]
    assert [one.key for one in blocks.list(regex="^b")] == [b"b:1"]
    assert len(blocks.list()) == 3
    assert blocks.remove_all(force=True) == 3 and blocks.list() == []


def test_a_batch_is_awaited(blocks):
    values = {f"k{i}": pattern(100000, i) for i in range(16)}

    async def use():
        sent = await asyncio.gather(*(blocks.send({k: v}) for k, v in values.items()))
        assert all(one.ok for results in sent for one in results)
        rooms = [bytearray(100000) for _ in values]
        handles = [blocks.fetch([k], [room]) for k, room in zip(values, rooms)]
        for handle in handles:
            assert (await handle)[0].bytes == 100000
        assert [bytes(room) for room in rooms] == list(values.values())
        assert [one.ok for one in await blocks.look(["k0", "missing"])] == [True, False]

    asyncio.run(use())


def test_a_batch_is_waited_for_by_its_descriptor(blocks):
    handle = blocks.send({"k": b"value"})
    assert select.select([handle.fileno()], [], [], 60)[0]
    assert handle.done() and handle.wait()[0].ok and blocks.get("k") == b"value"
    handle.cancel()
    assert handle.wait(1.0)[0].ok


def test_a_dropped_batch_keeps_its_memory_until_it_has_ended(blocks):
    blocks.put("k", pattern(MIB, 7))
    for _ in range(50):
        blocks.fetch(["k"], [bytearray(MIB)])
    assert blocks.get("k") == pattern(MIB, 7)


def test_after_close(master):
    client = yuebing.Store(master)
    handle = client.look(["k"])
    client.close()
    client.close()
    for call in (lambda: client.get("k"), lambda: client.put("k", b"v"), lambda: client.list(),
                 lambda: client.fetch(["k"], [bytearray(1)])):
        with pytest.raises(ValueError):
            call()
    try:
        handle.wait(10)
    except yuebing.Error as error:
        assert error.status == "CLOSED"


def test_close_while_others_call(master):
    client = yuebing.Store(master)
    ended = []

    def call():
        try:
            while True:
                client.exist("k")
        except (ValueError, yuebing.Error):
            ended.append(True)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    client.close()
    for thread in threads:
        thread.join(60)
    assert len(ended) == 4


def test_a_directory_that_is_not_there():
    with pytest.raises(yuebing.Error):
        yuebing.Store("127.0.0.1:1", timeout=0.5)


def test_bad_options(blocks):
    for bad in ({"timeout": 0}, {"timeout": -1}, {"work_class": "x"}):
        with pytest.raises(ValueError):
            blocks.put("k", b"v", **bad)
    for bad in ({"replicas": "2"}, {"no_such": 1}):
        with pytest.raises(TypeError):
            blocks.put("k", b"v", **bad)


def test_the_end_of_a_program_that_did_not_close(master):
    python("""
import sys, yuebing
store = yuebing.Store(sys.argv[1])
handle = store.look(["k"])
sys.keep = store, handle
""", master)
