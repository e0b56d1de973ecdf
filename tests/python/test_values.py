# SPDX-License-Identifier: Apache-2.0
"""Every call of the store against a real directory; every byte is compared."""
import array
import asyncio

import numpy
import pytest
from conftest import MIB, Memory, pattern, set_up, until
from mooncake.store import BufferHandle, ReplicateConfig

INVALID, MISSING, EXISTS = -600, -704, -705
SIZES = [1, 7, 4096, 65536, 65537, 3 * MIB + 1]


# ---- put and get --------------------------------------------------------------------------------

@pytest.mark.parametrize("size", SIZES)
def test_what_was_put_is_what_is_got(store, size):
    value = pattern(size, size)
    assert store.put("k", value) == 0
    got = store.get("k")
    assert type(got) is bytes and got == value
    assert store.get_size("k") == size
    assert store.is_exist("k") == 1


@pytest.mark.parametrize("value", [
    b"abcdefgh", bytearray(b"abcdefgh"), memoryview(b"abcdefgh"),
    memoryview(b"a-b-c-d-e-f-g-h-")[::2], array.array("I", b"abcdefgh"),
    numpy.frombuffer(b"abcdefgh", dtype=numpy.float32),
    numpy.frombuffer(b"abcdefgh", dtype=numpy.uint8).reshape(2, 4),
    numpy.frombuffer(b"ae--bf--cg--dh--", dtype=numpy.uint8).reshape(4, 4)[:, :2].T,
], ids=lambda value: type(value).__name__)
def test_a_buffer_counts_in_bytes_whatever_its_elements(store, value):
    assert store.put("k", value) == 0
    assert store.get("k") == b"abcdefgh"


def test_put_leaves_what_is_there(store):
    assert store.put("k", b"first") == 0
    assert store.put("k", b"second") == 0
    assert store.get("k") == b"first"


def test_upsert_replaces(store):
    assert store.upsert("k", b"first") == 0
    assert store.upsert("k", b"second, longer") == 0
    assert store.get("k") == b"second, longer"
    assert store.upsert_parts("k", b"th", b"ird") == 0
    assert store.get("k") == b"third"
    assert store.upsert_batch(["k", "l"], [b"4", b"5"]) == 0
    assert store.get_batch(["k", "l"]) == [b"4", b"5"]
    memory = Memory(8, b"eightish")
    assert store.upsert_from("k", memory.ptr, 8) == 0
    assert store.batch_upsert_from(["l"], [memory.ptr], [4]) == [0]
    assert store.get_batch(["k", "l"]) == [b"eightish", b"eigh"]


def test_empty_values(store):
    memory = Memory(8)
    assert store.put("k", b"") == INVALID
    assert store.put_parts("k") == 0
    assert store.put_parts("k", b"", b"") == 0
    assert store.put_from("k", memory.ptr, 0) == 0
    assert store.batch_put_from(["k"], [memory.ptr], [0]) == [INVALID]
    assert store.is_exist("k") == 0


def test_a_missing_key(store):
    memory = Memory(8)
    assert store.get("m") == b""
    assert store.get_batch(["m", "n"]) == [b"", b""]
    assert store.get_buffer("m") is None
    assert store.batch_get_buffer(["m"]) == [None]
    assert store.get_size("m") == MISSING
    assert store.get_into("m", memory.ptr, 8) == MISSING
    assert store.batch_get_into(["m"], [memory.ptr], [8]) == [MISSING]
    assert store.is_exist("m") == 0
    assert store.batch_is_exist(["m", "n"]) == [0, 0]
    assert store.remove("m") == MISSING


def test_keys_are_any_text_or_bytes(store):
    keys = ["plain", "月饼", "a/b@c:1", b"\x00\xff", "x" * 1024]
    for i, key in enumerate(keys):
        assert store.put(key, bytes([i + 1])) == 0
    assert store.batch_is_exist(keys) == [1] * len(keys)
    assert store.get_batch(keys) == [bytes([i + 1]) for i in range(len(keys))]
    assert store.get("月饼".encode()) == store.get("月饼")
    assert store.put("x" * 1025, b"v") < 0 and store.put("", b"v") < 0


def test_put_parts_are_joined(store):
    assert store.put_parts("k", b"ab", bytearray(b"cd"), memoryview(b"ef"),
                           numpy.frombuffer(b"gh", dtype=numpy.uint8)) == 0
    assert store.get("k") == b"abcdefgh"
    with pytest.raises(RuntimeError):
        store.put_parts("l", numpy.zeros(2, dtype=numpy.float32))
    with pytest.raises(RuntimeError):
        store.put_parts("l", numpy.zeros((2, 2), dtype=numpy.uint8))
    assert store.is_exist("l") == 0


def test_put_batch(store):
    assert store.put_batch(["a", "b", "a"], [b"1", b"2", b"3"]) == 0
    assert store.get_batch(["a", "b"]) == [b"1", b"2"]
    assert store.put_batch(["c"], []) == INVALID
    assert store.put_batch([], []) == 0


@pytest.mark.parametrize("kind", [list, tuple, numpy.array, lambda v: array.array("Q", v),
                                  lambda v: numpy.array(v, dtype=numpy.int64),
                                  lambda v: [numpy.uint64(n) for n in v]])
def test_addresses_in_any_sequence(store, kind):
    values = [pattern(5000 + i, i) for i in range(7)]
    source = [Memory(len(v), v) for v in values]
    keys = [f"k{i}" for i in range(7)]
    pointers, sizes = kind([m.ptr for m in source]), kind([m.size for m in source])
    assert store.batch_put_from(keys, pointers, sizes) == [0] * 7
    into = [Memory(6000) for _ in keys]
    got = store.batch_get_into(tuple(keys), kind([m.ptr for m in into]), kind([6000] * 7))
    assert got == [len(v) for v in values]
    assert [m.bytes(0, n) for m, n in zip(into, got)] == values
    assert all(type(n) is int for n in got)


def test_of_equal_keys_in_a_batch_the_last_counts(store):
    memory = Memory(8, b"aaaabbbb")
    assert store.batch_put_from(["k", "k"], [memory.ptr, memory.ptr + 4], [4, 4]) == [0, 0]
    assert store.get("k") == b"bbbb"


def test_a_buffer_that_is_too_small_is_minus_600_and_untouched(store):
    assert store.put("k", b"x" * 100) == 0
    memory = Memory(99, b"-" * 99)
    assert store.get_into("k", memory.ptr, 99) == INVALID
    assert store.batch_get_into(["k"], [memory.ptr], [99]) == [INVALID]
    assert memory.bytes() == b"-" * 99


def test_values_of_several_pieces(store):
    value = pattern(300000, 3)
    source = Memory(len(value), value)
    cuts = [0, 1, 4096, 70000, 300000]
    spans = list(zip(cuts, cuts[1:]))
    assert store.batch_put_from_multi_buffers(
        ["k"], [[source.ptr + a for a, _ in spans]], [[b - a for a, b in spans]]) == [0]
    assert store.get("k") == value
    into = Memory(400000)
    cuts = [0, 100000, 100001, 400000]
    spans = list(zip(cuts, cuts[1:]))
    got = store.batch_get_into_multi_buffers(
        ["k", "missing"], [[into.ptr + a for a, _ in spans], [into.ptr]],
        [[b - a for a, b in spans], [1]])
    assert got == [len(value), MISSING]
    assert into.bytes(0, len(value)) == value


def test_a_large_batch(store):
    count, size = 512, 20000
    value = pattern(count * size, 9)
    source, into = Memory(len(value), value), Memory(len(value))
    assert store.register_buffer(source.ptr, source.size) == 0
    assert store.register_buffer(into.ptr, into.size) == 0
    keys = [f"model@tp:0/group:0/{i:064x}" for i in range(count)]
    offsets = range(0, count * size, size)
    assert store.batch_put_from_multi_buffers(
        keys, [[source.ptr + o, source.ptr + o + 10000] for o in offsets],
        [[10000, 10000]] * count, ReplicateConfig()) == [0] * count
    assert store.batch_is_exist(keys) == [1] * count
    assert store.batch_get_into_multi_buffers(
        keys, [[into.ptr + o] for o in offsets], [[size]] * count) == [size] * count
    assert into.bytes() == value
    assert store.unregister_buffer(source.ptr) == 0
    assert store.unregister_buffer(into.ptr) == 0


def test_put_from_with_metadata(store):
    memory = Memory(12, b"headdatadata")
    assert store.put_from_with_metadata("k", memory.ptr + 4, memory.ptr, 8, 4) == 0
    assert store.get("k") == b"headdatadata"
    assert store.put_from_with_metadata("l", memory.ptr, memory.ptr, 0, 4) == 0
    assert store.is_exist("l") == 0


def test_a_value_in_the_librarys_memory(store):
    value = pattern(100000, 4)
    assert store.put("k", value) == 0
    handle = store.get_buffer("k")
    assert isinstance(handle, BufferHandle)
    assert len(handle) == handle.size() == len(value) and handle.ptr() != 0
    view = memoryview(handle)
    assert view.ndim == 1 and view.itemsize == 1 and view.nbytes == len(value)
    del handle
    assert store.remove("k", force=True) == 0
    assert bytes(view) == value
    assert numpy.frombuffer(view, dtype=numpy.uint8).tobytes() == value
    assert store.put_batch(["a", "b"], [b"1", b"2"]) == 0
    assert [h and bytes(h) for h in store.batch_get_buffer(["a", "m", "b"])] == [b"1", None, b"2"]


def test_registering_what_is_registered_is_refused(store):
    memory = Memory(8192)
    assert store.register_buffer(memory.ptr, 8192) == 0
    assert store.register_buffer(memory.ptr, 8192) == -7
    assert store.register_buffer(memory.ptr + 4096, 100) == -7
    assert store.unregister_buffer(memory.ptr) == 0
    assert store.register_buffer(0, 100) == INVALID
    assert store.register_buffer(memory.ptr, 0) == INVALID
    assert store.unregister_buffer(memory.ptr) != 0


# ---- remove -------------------------------------------------------------------------------------

def test_what_was_looked_for_is_held(store):
    assert store.put("k", b"v") == 0
    assert store.is_exist("k") == 1
    assert store.remove("k") == -706
    assert store.remove("k", True) == 0
    assert store.is_exist("k") == 0
    assert store.put_batch(["a", "b"], [b"1", b"2"]) == 0
    assert store.batch_remove(["a", "m", "b"], force=True) == [0, MISSING, 0]


def test_removing_many(store):
    keys = [f"x-{i}" for i in range(10)] + ["y-1"]
    assert store.put_batch(keys, [b"v"] * len(keys)) == 0
    assert store.remove_by_regex("^x-[0-4]$", force=True) == 5
    assert store.batch_is_exist(keys) == [0] * 5 + [1] * 6
    assert store.remove_all() < 6
    assert store.remove_all(force=True) >= 0
    assert store.batch_is_exist(keys) == [0] * 11
    assert store.remove_by_regex("(", force=True) < 0


# ---- ranges -------------------------------------------------------------------------------------

def test_ranges_of_many_values_into_many_buffers(store):
    values = {"a": pattern(1000, 1), "b": pattern(2000, 2)}
    for key, value in values.items():
        assert store.put(key, value) == 0
    first, second = Memory(1000), Memory(500)
    assert store.register_buffer(first.ptr, 1000) == 0
    assert store.register_buffer(second.ptr, 500) == 0
    got = store.get_into_ranges(
        [first.ptr, second.ptr],
        [["a", "b", "missing"], ["b"]],
        [[[0, 100], [200], [300, 301]], [[0, 490, 0]]],
        [[[0, 500], [1000], [0, 0]], [[10, 0, 1990]]],
        [[[100, 50], [60], [1, 1]], [[100, 100, 20]]])
    assert got[0] == [[100, 50], [60], [MISSING, MISSING]]
    assert got[1][0][0] == 100 and got[1][0][1] < 0 and got[1][0][2] < 0
    assert first.bytes(0, 100) == values["a"][:100]
    assert first.bytes(100, 50) == values["a"][500:550]
    assert first.bytes(200, 60) == values["b"][1000:1060]
    assert second.bytes(0, 100) == values["b"][10:110]
    # Lists of unlike length: codes in the shape of the destinations.
    assert store.get_into_ranges([first.ptr], [["a"]], [[[0, 1, 2]]], [[[0]]], [[[1]]]) == \
        [[[INVALID] * 3]]
    assert store.get_into_ranges([first.ptr], [], [], [], []) == [[[INVALID]]]
    # Inside of a registered buffer the room is what is left of it.
    assert store.get_into_ranges([first.ptr + 990], [["a"]], [[[0, 5]]], [[[0, 0]]],
                                 [[[10, 6]]])[0][0][0] == 10
    assert store.get_into_ranges([first.ptr + 990], [["a"]], [[[5]]], [[[0]]], [[[6]]]) == \
        [[[INVALID]]]
    assert store.unregister_buffer(first.ptr) == 0
    assert store.unregister_buffer(second.ptr) == 0


def test_a_session_of_reading(store):
    values = [pattern(5000, i) for i in range(4)]
    keys = [f"s{i}" for i in range(4)]
    assert store.put_batch(keys, values) == 0
    assert store.batch_get_session_start(keys + ["missing"]) == [0] * 4 + [MISSING]
    into = Memory(4 * 3000)
    for layer in (0, 1000, 2500):
        got = store.batch_get_into_multi_buffer_ranges(
            keys, [[into.ptr + i * 3000, into.ptr + i * 3000 + 1000] for i in range(4)],
            [[1000, 500]] * 4, [[layer, layer + 2000]] * 4)
        assert got == [1500] * 4
        for i, value in enumerate(values):
            assert into.bytes(i * 3000, 1000) == value[layer:layer + 1000]
            assert into.bytes(i * 3000 + 1000, 500) == value[layer + 2000:layer + 2500]
    assert store.batch_get_session_end(keys + ["unknown"]) == 0
    assert store.batch_get_into_multi_buffer_ranges(keys, [[into.ptr]] * 4, [[1]] * 4,
                                                    [[0]] * 4) == [INVALID] * 4


def test_a_session_of_writing(store):
    value = pattern(6000, 5)
    source = Memory(6000, value)
    assert store.batch_put_session_start(["w", "x"], [6000, 10]) == [0, 0]
    assert store.batch_put_session_start(["w"], [6000]) == [INVALID]
    assert store.is_exist("w") != 1
    for start in range(0, 6000, 2000):
        assert store.batch_put_from_multi_buffer_ranges(
            ["w"], [[source.ptr + start, source.ptr + start + 1000]], [[1000, 1000]],
            [[start, start + 1000]]) == [2000]
    assert store.batch_put_from_multi_buffer_ranges(["x"], [[source.ptr]], [[11]], [[0]])[0] < 0
    assert store.batch_put_session_end(["w"]) == [0]
    assert store.get("w") == value
    assert store.batch_put_session_revoke(["x"]) == [0]
    assert store.is_exist("x") == 0
    assert store.batch_put_session_start(["w"], [6000]) == [EXISTS]


# ---- replicas, tasks, segments ------------------------------------------------------------------

def test_replicas_are_described(store):
    assert store.put("k", b"v" * 100) == 0
    replica, = store.get_replica_desc("k")
    assert replica.is_memory_replica() and not replica.is_disk_replica()
    assert not replica.is_local_disk_replica()
    assert replica.status.name == "COMPLETE"
    assert replica.get_memory_descriptor().buffer_descriptor.size == 100
    assert list(store.batch_get_replica_desc(["k", "missing"])) == ["k"]
    assert store.get_replica_desc("missing") == []


def test_replicas_can_be_cleared(store):
    assert store.put_batch(["a", "b"], [b"1", b"2"]) == 0
    assert store.batch_replica_clear(["a", "missing"]) == ["a"]
    assert store.is_exist("a") == 0 and store.is_exist("b") == 1


def test_a_value_is_copied_and_moved(master, store):
    with set_up(master) as other:
        here, there = store.get_hostname(), other.get_hostname()
        config = ReplicateConfig()
        config.preferred_segment = here
        assert store.put("k", b"value", config) == 0
        assert store.create_copy_task("k", ["no such segment:1"]) == ((0, 0), INVALID)
        assert store.create_copy_task("missing", [there]) == ((0, 0), MISSING)
        # A client hears of a new segment a moment later than whoever gave it.
        task = until(lambda: started(store.create_copy_task("k", [there])), "the copy began")
        assert task != (0, 0)
        wait_for(store, task)
        assert len(store.get_replica_desc("k")) == 2
        assert store.query_task((1, 2))[1] == -1400
        store.remove("k", force=True)
        assert store.put("k", b"value", config) == 0
        task, code = store.create_move_task("k", here, there)
        assert code == 0
        wait_for(store, task)
        assert len(store.get_replica_desc("k")) == 1
        assert store.get("k") == b"value"
        store.remove_all(force=True)


def started(told):
    task, code = told
    return code == 0 and task


def wait_for(store, task):
    def ended():
        told, code = store.query_task(task)
        assert code == 0 and told.id == task
        assert told.status.name != "FAILED", told
        return told.status.name == "SUCCESS"

    until(ended, f"task {task} has ended")


def test_memory_is_given_and_taken_back(master):
    with set_up(master, segment=0) as pure:
        told = pure.allocate_and_mount_segment(32 * MIB)
        assert told["ret"] == 0 and told["allocated_size"] == 32 * MIB
        assert len(told["segment_ids"]) == 1
        assert pure.unmount_and_free_segment(told["segment_ids"]) == 0
        assert pure.unmount_segment(["unknown"]) != 0
        assert pure.mount_segment("/no/such/file", 4096)["ret"] < 0


# ---- configuration ------------------------------------------------------------------------------

def test_what_a_config_asks_for(store):
    config = ReplicateConfig()
    config.with_hard_pin = True
    config.preferred_segments = ["no such segment", store.get_hostname()]
    config.group_ids = ["g"]
    assert store.put("k", b"v", config) == 0
    config.group_ids = ["g", "h", "i"]
    memory = Memory(8)
    assert store.batch_put_from(["a", "b"], [memory.ptr] * 2, [4] * 2, config) == [INVALID] * 2
    config = ReplicateConfig()
    config.soft_pin_ttl_ms = 5
    assert store.put("l", b"v", config) == INVALID
    config = ReplicateConfig()
    config.replica_num = 0
    assert store.put("l", b"v", config) == INVALID
    config.replica_num = 100  # As many as there can be.
    assert store.put("l", b"v", config) == 0 and store.get("l") == b"v"


def test_of_equal_keys_the_last_counts_or_of_pieces_the_first(store):
    memory = Memory(8, b"12345678")
    assert store.batch_put_from(["k", "k"], [memory.ptr, memory.ptr + 4], [4, 4]) == [0, 0]
    assert store.get("k") == b"5678"
    assert store.batch_put_from_multi_buffers(
        ["l", "l"], [[memory.ptr], [memory.ptr + 4]], [[4], [4]]) == [0, 0]
    assert store.get("l") == b"1234"


def test_a_key_that_cannot_be_is_not_there(store):
    memory = Memory(8)
    for key in ("", "x" * 1025):
        assert store.put(key, b"v") < 0 and store.put_from(key, memory.ptr, 8) < 0
        assert store.is_exist(key) == 0 and store.batch_is_exist([key, "k"]) == [0, 0]
        assert store.get(key) == b"" and store.get_size(key) == MISSING
        assert store.get_into(key, memory.ptr, 8) == MISSING and store.remove(key) == MISSING


def test_the_same_node_is_preferred_by_multi_buffers_alone(store):
    config = ReplicateConfig()
    config.prefer_alloc_in_same_node = True
    memory = Memory(8, b"12345678")
    assert store.put("k", b"v", config) == INVALID
    assert store.put_batch(["k"], [b"v"], config) == INVALID
    assert store.batch_put_from(["k"], [memory.ptr], [8], config) == [INVALID]
    assert store.put_from_with_metadata("k", memory.ptr, memory.ptr, 4, 4, config) == -1
    assert store.batch_put_from_multi_buffers(["k"], [[memory.ptr]], [[8]], config) == [0]
    assert store.get("k") == b"12345678"
    assert store.batch_put_session_start(["s"], [4], config) == [0]  # A session takes it, too.
    assert store.batch_put_session_revoke(["s"]) == [0]


def test_setup_by_name(master, store):
    from mooncake.store import MooncakeDistributedStore
    other = MooncakeDistributedStore()
    assert other.setup({"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
                        "global_segment_size": "16 MB", "local_buffer_size": "16MB",
                        "master_server_addr": master, "protocol": "tcp"}) == 0
    assert other.health_check() == 0
    assert other.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", master) == INVALID
    assert other.get_hostname().startswith("127.0.0.1:")
    assert store.put("k", b"v") == 0 and other.get("k") == b"v"
    assert other.close() == 0 and other.close() == 0
    assert other.health_check() == 1 and other.get("k") == b""


def test_setup_by_name_reads_other_spellings_but_the_right_one_wins(master):
    from mooncake.store import MooncakeDistributedStore
    config = {"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
              "global_segment_size": "0", "local_buffer_size": "0", "device_name": "",
              "master_server_address": master}
    with MooncakeDistributedStore() as store:
        assert store.setup(config) == 0 and store.health_check() == 0
    with MooncakeDistributedStore() as store:
        assert store.setup({**config, "master_server_addr": "127.0.0.1:1"}) < 0


def test_a_client_of_the_metadata_alone(master, store):
    with set_up(master, 0, 0) as query:
        assert store.put("k", b"v") == 0
        assert query.batch_is_exist(["k", "l"]) == [1, 0]


def test_tenants_do_not_see_each_other(master, store):
    with set_up(master, tenant_id="other") as other:
        assert store.put("k", b"ours") == 0
        assert other.is_exist("k") == 0
        assert other.put("k", b"theirs") == 0
        assert store.get("k") == b"ours" and other.get("k") == b"theirs"


def test_no_room_is_minus_200(own_master):
    with set_up(own_master.address, 16 * MIB, 64 * MIB) as small:
        assert small.put("too large", bytes(40 * MIB)) == -200


def test_the_async_store(master, store):
    from mooncake.async_store import MooncakeDistributedStoreAsync

    async def use():
        other = MooncakeDistributedStoreAsync()
        assert await other.async_setup("127.0.0.1", "P2PHANDSHAKE", 0, MIB, "tcp", "", master) == 0
        codes = await asyncio.gather(*(other.async_put(f"k{i}", b"v%d" % i) for i in range(20)))
        assert codes == [0] * 20
        assert await other.async_get_batch([f"k{i}" for i in range(20)]) == \
            [b"v%d" % i for i in range(20)]
        with pytest.raises(AttributeError):
            other.async_no_such_method
        with pytest.raises(AttributeError):
            other.no_such_method
        assert await other.async_close() == 0

    asyncio.run(use())
