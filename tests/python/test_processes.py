# SPDX-License-Identifier: Apache-2.0
"""Values between processes: what a session holds, how long a pin lasts, dummies, device memory."""
import ctypes
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import yuebing
from conftest import DEADLINE_S, MIB, Memory, pattern, python, set_up, until
from mooncake.store import (
    MooncakeDistributedStore,
    MooncakeHostMemAllocator,
    ReplicateConfig,
    SoftPinAction,
)

LEASED, MISSING, NO_SESSION = -706, -704, -600
STANDIN = pathlib.Path(__file__).resolve().parents[1] / "device" / "standin_cuda.c"


# ---- a session of reading -----------------------------------------------------------------------

SIZE = MIB
READER = """
import ctypes, hashlib, json, sys
from mooncake.store import MooncakeDistributedStore
size = int(sys.argv[2])
into = ctypes.create_string_buffer(size)
base = ctypes.addressof(into)
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", sys.argv[1]) == 0
calls = {
    "start": lambda: store.batch_get_session_start(["held"]),
    "read": lambda: store.batch_get_into_multi_buffer_ranges(
        ["held"], [[base, base + size // 2]], [[size // 2] * 2], [[0, size // 2]]),
    "end": lambda: [store.batch_get_session_end(["held"])],
}
for line in sys.stdin:
    ctypes.memset(into, 0, size)
    code = calls[line.strip()]()[0]
    print(json.dumps([code, hashlib.sha256(into.raw).hexdigest()]), flush=True)
store.close()
"""


class Reader:
    """Another process with a session."""

    def __init__(self, master, **environment):
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER, master, str(SIZE)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})

    def ask(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(DEADLINE_S)


def put(store, key, value):
    """Put it, also where a node's heartbeat was late and it takes nothing for a moment."""
    until(lambda: store.put(key, value) == 0, f"{key} is put")


def hold_and_evict(store, reader, round_):
    """Whether the session lasted. As long as it did its bytes stayed, whatever its owner did."""
    value = pattern(SIZE, round_)
    told = [SIZE, hashlib.sha256(value).hexdigest()]
    lasted = True

    def read():
        nonlocal lasted
        got = reader.ask("read")
        assert got == told or got[0] < 0  # No other bytes, ever.
        lasted = lasted and got == told  # Or the machine stood still for longer than the lease.

    put(store, "held", value)
    lasted = reader.ask("start")[0] == 0 and store.remove("held") == LEASED
    for number in range(64):  # Twice what the segment has.
        put(store, f"filler {round_} {number}", pattern(SIZE, number))
        read()
    assert store.get_replica_desc(f"filler {round_} 0") == []
    lasted = lasted and store.get("held") == value
    until(lambda: store.remove("held", force=True) in (0, MISSING), "it is removed")
    put(store, "held", pattern(SIZE, round_ + 1000))
    got = reader.ask("read")
    assert got == told or got[0] < 0
    assert reader.ask("end")[0] == 0
    assert reader.ask("read")[0] == NO_SESSION
    until(lambda: store.remove("held", force=True) in (0, MISSING), "it is removed")
    return lasted


@pytest.mark.parametrize("environment", [{}, {"MC_FORCE_TCP": "1"}], ids=["shared", "tcp"])
def test_what_a_session_holds_stays_whatever_its_owner_does(own_master, environment):
    with set_up(own_master.address, segment=32 * MIB) as store, \
            Reader(own_master.address, **environment) as reader:
        assert any(hold_and_evict(store, reader, round_) for round_ in range(5))


# ---- pins ---------------------------------------------------------------------------------------

def test_a_soft_pin_ends_after_its_time_and_not_before(own_master):
    with set_up(own_master.address, segment=16 * MIB) as store, \
            yuebing.Store(own_master.address) as probe:
        for key, ttl_ms in (("short", 1), ("long", 3600000), ("plain", None)):
            config = ReplicateConfig()
            if ttl_ms is not None:
                config.soft_pin_action = SoftPinAction.ENABLE
                config.soft_pin_ttl_ms = ttl_ms
            until(lambda k=key, c=config: store.put(k, pattern(MIB, len(k)), c) == 0, "it is put")
        fillers = iter(range(1 << 20))

        def gone(key):
            number = next(fillers)
            put(store, f"filler {number}", pattern(MIB, number))
            return not probe.exist(key)  # Which is no use of it.

        until(lambda: gone("plain"), "what is not pinned is evicted")
        until(lambda: gone("short"), "a pin that has ended holds nothing")
        assert store.get("long") == pattern(MIB, len("long"))


# ---- dummies ------------------------------------------------------------------------------------

@pytest.fixture
def real_client(own_master):
    """The port of a `mooncake_client`, and its process."""
    program = os.path.join(os.path.dirname(yuebing.__file__), "_bin", "mooncake_client")
    process = subprocess.Popen(
        [program, "--host=127.0.0.1", "--port=0", "--http_port=0",
         f"--master_server_address={own_master.address}", "--global_segment_size=32 MB"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    said = process.stdout.readline()
    assert said.startswith("node listening on 127.0.0.1:"), said
    yield int(said.rpartition(":")[2]), process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_dummy_shares_the_memory_of_a_client_of_its_host(own_master, real_client):
    port, process = real_client
    dummy, allocator = MooncakeDistributedStore(), MooncakeHostMemAllocator()
    assert dummy.setup_dummy(16 * MIB, MIB, f"127.0.0.1:{port}") == 0
    until(lambda: dummy.put("first", b"x") == 0, "the client has given its memory")
    base = allocator.alloc(8 * MIB)
    keys = [f"d{i}" for i in range(4)]
    try:
        assert base != 0 and dummy.register_buffer(base, 8 * MIB) == 0
        for i in range(4):
            ctypes.memmove(base + i * MIB, pattern(MIB, i), MIB)
        assert dummy.batch_put_from(keys, [base + i * MIB for i in range(4)], [MIB] * 4) == [0] * 4
        assert [replica.get_memory_descriptor().buffer_descriptor.transport_endpoint
                for key in keys for replica in dummy.get_replica_desc(key)] == \
            [f"127.0.0.1:{port}"] * 4  # It gave no memory itself.
        with set_up(own_master.address, segment=0) as other:
            assert other.get_batch(keys) == [pattern(MIB, i) for i in range(4)]
            assert other.put("back", pattern(3 * MIB, 9)) == 0
        assert dummy.batch_get_into(keys + ["none"], [base + (4 + i % 4) * MIB for i in range(5)],
                                    [MIB] * 5) == [MIB] * 4 + [-704]
        assert ctypes.string_at(base + 4 * MIB, 4 * MIB) == b"".join(
            pattern(MIB, i) for i in range(4))
        assert dummy.get_into("back", base, 8 * MIB) == 3 * MIB
        assert ctypes.string_at(base, 3 * MIB) == pattern(3 * MIB, 9)
        assert dummy.mount_segment("/dev/zero", 4096)["ret"] < 0
        process.kill()
        process.wait()
        assert dummy.get_into("back", base, 8 * MIB) < 0
        assert MooncakeDistributedStore().setup_dummy(MIB, MIB, f"127.0.0.1:{port}") < 0
    finally:
        assert dummy.unregister_buffer(base) == 0 and dummy.close() == 0
        assert allocator.free(base) == 0


# ---- device memory ------------------------------------------------------------------------------

DEVICE = """
import ctypes, hashlib, sys
from mooncake.store import MooncakeDistributedStore
MIB = 1 << 20
driver = ctypes.CDLL("libcuda.so.1")
context, base = ctypes.c_void_p(), ctypes.c_void_p()
assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
assert driver.cuMemAlloc_v2(ctypes.byref(base), ctypes.c_size_t(4 * MIB)) == 0
touch = driver.standin_cuda_touch
touch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
driver.standin_cuda_get.restype = ctypes.c_uint64
host = ctypes.create_string_buffer(bytes(i * 7 % 251 for i in range(2 * MIB)), 4 * MIB)
at, device = ctypes.addressof(host), base.value
assert touch(device, at, 2 * MIB) == 0
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 16 * MIB, 4 * MIB, "tcp", "", sys.argv[1]) == 0
assert store.register_buffer(device, 4 * MIB) == 0 and store.register_buffer(at, 4 * MIB) == 0
keys = ["a", "b"]
assert store.batch_put_from(keys, [device, device + MIB], [MIB] * 2) == [0, 0]
assert store.get_batch(keys) == [host.raw[:MIB], host.raw[MIB:2 * MIB]]
assert store.batch_get_into(keys, [device + 3 * MIB, device + 2 * MIB], [MIB] * 2) == [MIB] * 2
assert touch(at + 2 * MIB, device + 2 * MIB, 2 * MIB) == 0
assert host.raw[2 * MIB:3 * MIB] == host.raw[MIB:2 * MIB]
assert host.raw[3 * MIB:] == host.raw[:MIB]
pieces = [[device, device + 3 * MIB], [at, device + 2 * MIB]]
sizes = [[4096, 5000], [100, 4097]]
assert store.batch_put_from_multi_buffers(["c", "d"], pieces, sizes) == [0, 0]
assert store.get("c") == host.raw[:4096] + host.raw[:5000]
assert store.get("d") == host.raw[:100] + host.raw[MIB:MIB + 4097]
assert store.batch_get_into_multi_buffers(["d"], [[device, at]], [[4000, 197]]) == [4197]
want = store.get("d")
assert touch(at + MIB, device, 4000) == 0
assert host.raw[MIB:MIB + 4000] + host.raw[:197] == want
assert driver.standin_cuda_get(b"copies") > 0
assert store.close() == 0
print("done")
"""


@pytest.fixture(scope="module")
def standin(tmp_path_factory):
    """The folder of a driver for machines without a device."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the stand-in device")
    folder = tmp_path_factory.mktemp("device")
    subprocess.run([compiler, "-shared", "-fPIC", "-pthread", "-D_GNU_SOURCE", "-std=gnu11",
                    f"-I{STANDIN.parents[2] / 'src'}", str(STANDIN), "-o",
                    str(folder / "libcuda.so.1")], check=True)
    return str(folder)


def test_addresses_of_a_device_go_through_every_batched_call(master, standin):
    environment = {**os.environ, "LD_LIBRARY_PATH": standin}
    assert python(DEVICE, master, env=environment).split() == ["done"]
