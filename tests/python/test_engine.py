# SPDX-License-Identifier: Apache-2.0
"""The engine between two objects and between two processes; every byte is compared."""
import json
import signal
import socket
import subprocess
import sys
import threading

import numpy
import pytest
from conftest import MIB, Memory, pattern, until
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode


def engine():
    made = TransferEngine()
    assert made.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert 15000 <= made.get_rpc_port() <= 17000
    return made


def name(one):
    return f"127.0.0.1:{one.get_rpc_port()}"


@pytest.fixture(scope="module")
def pair():
    return engine(), engine()


@pytest.fixture
def registered(pair):
    """Memory of each, registered."""
    memories = [Memory(4 * MIB) for _ in pair]
    for one, memory in zip(pair, memories):
        assert one.register_memory(memory.ptr, memory.size) == 0
    yield memories
    for one, memory in zip(pair, memories):
        assert one.unregister_memory(memory.ptr) == 0


def fill(memory, seed):
    value = pattern(memory.size, seed)
    memory.raw[:memory.size] = value
    return value


def test_single_writes_and_reads(pair, registered):
    a, b = pair
    here, there = registered
    value = fill(here, 1)
    assert a.transfer_sync_write(name(b), here.ptr, there.ptr + 10, 100000) == 0
    assert there.bytes(10, 100000) == value[:100000]
    value = fill(there, 2)
    assert a.transfer_sync_read(name(b), here.ptr + 5, there.ptr, 4096, transport_hint="") == 0
    assert here.bytes(5, 4096) == value[:4096]


def test_batches(pair, registered):
    a, b = pair
    here, there = registered
    value = fill(here, 3)
    count, size = 1000, 4096
    order = numpy.random.default_rng(5).permutation(count)
    local = [here.ptr + int(i) * size for i in order]
    remote = [there.ptr + i * size for i in range(count)]
    assert a.batch_transfer_sync_write(name(b), local, remote, [size] * count) == 0
    for i in range(count):
        at = int(order[i]) * size
        assert there.bytes(i * size, size) == value[at:at + size]
    fill(here, 4)
    assert a.batch_transfer_sync_read(name(b), numpy.array(local), tuple(remote),
                                      numpy.full(count, size)) == 0
    assert here.bytes(0, count * size) == value[:count * size]
    assert a.batch_transfer_sync_write(name(b), local, remote, [size]) == -1
    assert a.batch_transfer_sync_write(target_hostname=name(b), buffers=[], lengths=[],
                                       peer_buffer_addresses=[]) in (0, -1)


def test_both_ways_by_opcode_and_with_a_word(pair, registered):
    a, b = pair
    here, there = registered
    value = fill(here, 6)
    task = json.dumps({"task_id": 7, "text": "月饼"})
    assert a.transfer_sync(name(b), here.ptr, there.ptr, 5000, TransferOpcode.Write,
                           TransferNotify("me", task)) == 0
    assert there.bytes(0, 5000) == value[:5000]
    told = until(b.get_notifies, "the word arrived")
    assert [(one.name, one.msg) for one in told] == [("me", task)]
    assert b.get_notifies() == []
    assert a.transfer_sync(name(b), here.ptr, there.ptr, 0, TransferOpcode.Write,
                           TransferNotify("empty", "0")) == 0
    assert [one.name for one in until(b.get_notifies, "the word arrived")] == ["empty"]
    assert a.batch_transfer_sync(name(b), [here.ptr + 9000], [there.ptr], [5000],
                                 opcode=TransferOpcode.Read, notify=None) == 0
    assert here.bytes(9000, 5000) == value[:5000]
    with pytest.raises(ValueError):
        a.transfer_sync(name(b), here.ptr, there.ptr, 1, 2)


def test_asynchronous_transfers(pair, registered):
    a, b = pair
    here, there = registered
    value = fill(here, 8)
    batches = [a.batch_transfer_async_write(name(b), [here.ptr + i * 1000], [there.ptr + i * 1000],
                                            [1000]) for i in range(20)]
    assert all(batches)
    assert a.get_batch_transfer_status(batches) == 0
    assert there.bytes(0, 20000) == value[:20000]
    batch = a.transfer_submit_write(name(b), here.ptr + 5, there.ptr, 100)
    until(lambda: a.transfer_check_status(batch) == 1, "it has ended")
    assert there.bytes(0, 100) == value[5:105]
    batch = a.batch_transfer_async(name(b), [here.ptr], [there.ptr], [100], TransferOpcode.Read)
    assert a.get_batch_transfer_status([batch]) == 0
    assert here.bytes(0, 100) == value[5:105]
    assert a.get_batch_transfer_status([]) == 0


def test_registering(pair):
    a, _ = pair
    memories = [Memory(8192) for _ in range(3)]
    pointers = [m.ptr for m in memories]
    assert a.batch_register_memory(pointers, [8192] * 3) == 0
    assert a.register_memory(pointers[0], 8192) == -7
    assert a.register_memory(pointers[1] + 100, 8) == -7
    assert a.batch_unregister_memory(pointers) == 0
    assert a.unregister_memory(pointers[0]) == -3
    assert a.batch_register_memory(pointers, [8192]) != 0
    assert a.register_memory(pointers[0], 8192, "cpu:0") == 0
    assert a.unregister_memory(pointers[0]) == 0


def test_looking_around(pair, registered):
    a, b = pair
    assert a.send_probe(name(b)) == 0
    assert a.send_probe("127.0.0.1:1") != 0
    assert a.get_first_buffer_address(name(b)) == registered[1].ptr
    assert json.loads(a.get_local_topology()) is not None
    assert a.get_engine_ptr() != 0
    assert a.warmup_efa_segment(name(b)) == 0


def test_managed_buffers(pair):
    a, _ = pair
    address = a.allocate_managed_buffer(5000)
    assert address != 0
    assert a.write_bytes_to_buffer(address, b"hello, buffer", 13) == 0
    assert a.read_bytes_from_buffer(address, 13) == b"hello, buffer"
    assert a.free_managed_buffer(address, 5000) == 0
    with pytest.raises(ValueError):
        a.write_bytes_to_buffer(address, b"x", 2)


def test_a_peer_that_is_not_there(pair, registered):
    a, _ = pair
    here = registered[0]
    assert a.transfer_sync_write("127.0.0.1:1", here.ptr, 4096, 10) == -1
    assert a.batch_transfer_sync_read("127.0.0.1:1", [here.ptr], [4096], [10]) == -1


def test_memory_of_ones_own_need_not_be_registered(pair, registered):
    a, b = pair
    here, there = Memory(MIB), registered[1]
    value = fill(here, 13)
    assert a.transfer_sync_write(name(b), here.ptr, there.ptr, here.size) == 0
    assert there.bytes(0, here.size) == value
    fill(there, 14)
    assert a.batch_transfer_sync_read(name(b), [here.ptr + 5], [there.ptr], [70000]) == 0
    assert here.bytes(5, 70000) == there.bytes(0, 70000)


def test_an_address_of_ipv6_stands_in_brackets(registered):
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no ::1")
    there = Memory(MIB)
    value = fill(registered[0], 15)
    one, other = TransferEngine(), TransferEngine()
    assert one.initialize("::1", "P2PHANDSHAKE", "tcp", "") == 0
    assert other.initialize("[::1]", "P2PHANDSHAKE", "tcp", "") == 0
    assert other.register_memory(there.ptr, there.size) == 0
    session = f"[::1]:{other.get_rpc_port()}"
    assert one.send_probe(session) == 0
    assert one.transfer_sync_write(session, registered[0].ptr, there.ptr, there.size) == 0
    assert there.bytes(0, there.size) == value[:there.size]


def test_a_port_that_is_taken_is_answered_by_a_code():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        one = TransferEngine()
        code = one.initialize(f"127.0.0.1:{port}", "P2PHANDSHAKE", "tcp", "")
        assert code == -1 or one.get_rpc_port() not in (0, port)


def test_memory_that_a_peer_did_not_register(pair, registered):
    a, b = pair
    assert a.transfer_sync_write(name(b), registered[0].ptr, 4096, 10) == -1


def test_twelve_threads_write_through_one_engine(pair, registered):
    a, b = pair
    here, there = registered
    value = fill(here, 11)
    share, failures = here.size // 12 // 4096 * 4096, []

    def work(index):
        start = index * share
        for _ in range(10):
            offsets = range(start, start + share, 4096)
            code = a.batch_transfer_sync_write(
                name(b), [here.ptr + o for o in offsets], [there.ptr + o for o in offsets],
                [4096] * len(offsets))
            if code != 0:
                failures.append(code)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert there.bytes(0, share * 12) == value[:share * 12]


PEER = """
import ctypes, sys
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
memory = ctypes.create_string_buffer(1 << 20)
assert engine.batch_register_memory([ctypes.addressof(memory)], [1 << 20]) == 0
print(engine.get_rpc_port(), ctypes.addressof(memory), flush=True)
for line in sys.stdin:
    start, length = map(int, line.split())
    print(memory.raw[start:start + length].hex(), flush=True)
"""


class Stopped:
    """A peer that can be stopped for a while."""

    def __init__(self, code):
        self.process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def test_another_process_gets_the_bytes(pair, registered):
    a, _ = pair
    value = fill(registered[0], 12)
    with subprocess.Popen([sys.executable, "-c", PEER], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, bufsize=1) as peer:
        port, address = map(int, peer.stdout.readline().split())
        assert a.batch_transfer_sync_write(f"127.0.0.1:{port}", [registered[0].ptr] * 2,
                                           [address, address + 500000], [300000, 300000]) == 0
        peer.stdin.write("500000 300000\n")
        peer.stdin.flush()
        assert bytes.fromhex(peer.stdout.readline()) == value[:300000]
        peer.kill()
        peer.wait()
        assert a.transfer_sync_write(f"127.0.0.1:{port}", registered[0].ptr, address, 10) == -1
        peer.stdin.close()


def test_a_store_shares_an_engine(master):
    from mooncake.store import MooncakeDistributedStore
    one = engine()
    store = MooncakeDistributedStore()
    inner = one.get_engine()
    assert store.setup("127.0.0.1", "P2PHANDSHAKE", 16 * MIB, MIB, "tcp", "", master, inner) == 0
    del one, inner
    assert store.put("shared", b"v") == 0 and store.get("shared") == b"v"
    store.close()
    other = MooncakeDistributedStore()
    with pytest.raises(TypeError):
        other.setup("127.0.0.1", "P2PHANDSHAKE", 0, MIB, "tcp", "", master, engine="x")
    assert other.setup("127.0.0.1", "P2PHANDSHAKE", 0, MIB, "tcp", "", master, engine=None) == 0
    other.close()


def test_initialize_ext_and_what_it_refuses():
    assert TransferEngine().initialize_ext("127.0.0.1", "P2PHANDSHAKE", "tcp", "", "nonsense") in \
        (0, -1)
    assert TransferEngine().initialize("not a host.", "P2PHANDSHAKE", "tcp", "") == -1
