# SPDX-License-Identifier: Apache-2.0
"""The packages as they are installed: what is in them, what they refuse, with whom they live."""
import ast
import importlib
import importlib.metadata
import importlib.util
import inspect
import itertools
import os
import shutil
import subprocess
import sys

import pytest
from conftest import MIB, Memory, pattern, python

HERE = os.path.dirname(sys.executable)


def test_the_distribution_is_ours():
    import mooncake
    import yuebing
    assert importlib.metadata.version("yuebing") == yuebing.__version__ == mooncake.__version__
    for package in (mooncake, yuebing):
        assert os.path.exists(os.path.join(os.path.dirname(package.__file__), "py.typed"))


def test_the_program_is_there():
    told = subprocess.run([os.path.join(HERE, "yuebing"), "--version"], capture_output=True,
                          text=True, check=True)
    assert told.stdout.startswith("yuebing ")


@pytest.mark.parametrize("name", ["mooncake_master", "mooncake_client",
                                  "mooncake_http_metadata_server"])
def test_the_known_commands_are_there(name):
    told = subprocess.run([os.path.join(HERE, name), "--help"], capture_output=True, text=True)
    assert told.returncode == 0 and "--" in told.stdout + told.stderr


def test_names_that_are_imported():
    import mooncake
    from mooncake import async_store, buffer_pool, engine, mooncake_config, store
    for module in (mooncake, async_store, buffer_pool, engine, mooncake_config, store):
        for name in module.__all__:
            assert getattr(module, name) is not None
    assert store.PROCESSING is store.TaskStatus.PROCESSING
    assert store.KVCACHE is store.ObjectDataType.KVCACHE
    assert not hasattr(store, "ENABLE")
    assert str(store.ReplicaStatus.COMPLETE) == f"{store.COMPLETE}" == "ReplicaStatus.COMPLETE"
    assert store.COMPLETE == 3


def stubs_of(module):
    """Names in a module's stub: those of a class with theirs."""
    with open(os.path.splitext(module.__file__)[0] + ".pyi", encoding="utf-8") as file:
        tree = ast.parse(file.read())

    def names(body):
        for one in body:
            if isinstance(one, (ast.Import, ast.ImportFrom)):
                yield from ((alias.asname or alias.name, None) for alias in one.names)
            elif isinstance(one, ast.ClassDef):
                yield one.name, dict(names(one.body))
            elif isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield one.name, None
            elif isinstance(one, (ast.Assign, ast.AnnAssign)):
                target = one.targets[0] if isinstance(one, ast.Assign) else one.target
                yield target.id, None

    return dict(names(tree.body))


@pytest.mark.parametrize("name", ["store", "engine", "buffer_pool", "shared_segment"])
def test_every_name_has_a_stub_and_says_what_it_is(name):
    module = importlib.import_module(f"mooncake.{name}")
    stubs = stubs_of(module)
    lacking = []
    for public in module.__all__:
        value = getattr(module, public)
        lacking += [f"{public}: no stub"] * (public not in stubs)
        lacking += [f"{public}: no text"] * (callable(value) and not inspect.getdoc(value))
        if not inspect.isclass(value) or stubs.get(public) is None:
            continue
        held = {name for one in value.__mro__ for name in stubs.get(one.__name__) or ()}
        for member in set(dir(value)) - set(dir(int)) - set(dir(Exception)):
            if member[0] != "_":
                lacking += [f"{public}.{member}: no stub"] * (member not in held)
                lacking += [f"{public}.{member}: no text"] * (
                    callable(getattr(value, member)) and not inspect.getdoc(getattr(value, member)))
    assert not lacking


IMPORTED = ["ssl", "requests", "mooncake.store"]
IMPORTED += ["torch"] if importlib.util.find_spec("torch") else []


@pytest.mark.parametrize("order", list(itertools.permutations(IMPORTED)))
def test_any_order_of_imports(order):
    python("\n".join(f"import {m}" for m in order) + """
import hashlib, json, ssl
requests.Session().close()
from mooncake.store import MooncakeDistributedStore
ssl.create_default_context()
assert hashlib.new("sha256", b"").hexdigest().startswith("e3b0c442")
assert MooncakeDistributedStore().is_exist("k") == -600
""")


def test_no_symbol_of_what_it_brings_is_shown():
    python("""
import ctypes, yuebing._native
for name in ("SSL_new", "EVP_DigestInit_ex", "yb_client_open", "yb_compat_store_create"):
    try:
        getattr(ctypes.CDLL(yuebing._native.__file__), name)
    except AttributeError:
        continue
    if name.startswith("yb_"):
        raise SystemExit(f"{name} is shown")
""")


def installed_copy(folder):
    """The packages in another folder, which is where Python finds them first."""
    import yuebing
    site = os.path.dirname(os.path.dirname(yuebing.__file__))
    for name in ("mooncake", "yuebing", "yuebing.libs"):
        if os.path.exists(os.path.join(site, name)):
            shutil.copytree(os.path.join(site, name), folder / name)
    return folder


@pytest.mark.parametrize("stranger", ["mooncake/engine.cpython-311-x86_64-linux-gnu.so",
                                      "mooncake/mooncake_master",
                                      "mooncake_transfer_engine-0.3.7.dist-info/RECORD"])
def test_a_foreign_package_is_refused(tmp_path, stranger):
    copy = installed_copy(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    python("import mooncake.store", env=environment)
    (copy / stranger).parent.mkdir(exist_ok=True)
    (copy / stranger).write_bytes(b"")
    done = subprocess.run([sys.executable, "-c", "import mooncake.store"], env=environment,
                          capture_output=True, text=True)
    assert done.returncode != 0
    assert "ImportError" in done.stderr and "pip uninstall -y mooncake-transfer-engine" in \
        done.stderr


def test_our_own_marks_itself(tmp_path):
    from yuebing._foreign import look
    found = look(str(installed_copy(tmp_path) / "mooncake"))
    assert found.alone
    (tmp_path / "mooncake" / "_ours").unlink()
    assert not look(str(tmp_path / "mooncake")).alone


# ---- configuration ------------------------------------------------------------------------------

def test_the_configuration_from_a_file(tmp_path, monkeypatch):
    from mooncake.mooncake_config import MooncakeConfig
    path = tmp_path / "config.json"
    path.write_text('{"local_hostname": "h", "metadata_server": "P2PHANDSHAKE",'
                    ' "global_segment_size": "4GB", "master_server_address": "m:1"}')
    config = MooncakeConfig.from_file(str(path))
    assert (config.local_hostname, config.global_segment_size) == ("h", 4 << 30)
    assert (config.protocol, config.client_http_port, config.tenant_id) == ("tcp", 9300, "default")
    monkeypatch.setenv("MOONCAKE_CONFIG_PATH", str(path))
    assert MooncakeConfig.load_from_env() == config
    monkeypatch.delenv("MOONCAKE_CONFIG_PATH")
    monkeypatch.delenv("MOONCAKE_MASTER", raising=False)
    with pytest.raises(ValueError, match="MOONCAKE_MASTER"):
        MooncakeConfig.load_from_env()
    monkeypatch.setenv("MOONCAKE_MASTER", "m:2")
    monkeypatch.setenv("MOONCAKE_GLOBAL_SEGMENT_SIZE", "512 MB")
    config = MooncakeConfig.load_from_env()
    assert (config.master_server_address, config.global_segment_size) == ("m:2", 512 << 20)
    assert (config.metadata_server, config.local_buffer_size) == ("P2PHANDSHAKE", 1 << 30)
    path.write_text("{}")
    with pytest.raises(ValueError, match="local_hostname"):
        MooncakeConfig.from_file(str(path))


# ---- pools and allocators -----------------------------------------------------------------------

def test_a_pool_of_buffers(store):
    from mooncake.store import BufferPool
    with BufferPool(store, max_bytes=16 * MIB, prewarm_size=65536, prewarm_count=2) as pool:
        with pool.buffer(100000) as lease:
            assert lease.size == 100000 and len(lease.buffer) == 100000
            lease.buffer[:5] = b"hello"
            assert store.put_from("k", lease.ptr, 5) == 0
            first = lease.ptr
        assert store.get("k") == b"hello"
        with pool.acquire(90000) as lease:
            assert lease.ptr == first
            view = lease.view()
            with pytest.raises(RuntimeError):
                pool.close()
        assert bytes(memoryview(view)[:5]) == b"hello"
        with pytest.raises(ValueError):
            pool.acquire(17 * MIB)
        with pytest.raises(ValueError):
            pool.acquire(0)
        held = [pool.acquire(4 * MIB) for _ in range(3)]
        with pytest.raises(MemoryError):
            [pool.acquire(8 * MIB, block=False) for _ in range(2)]
        with pytest.raises(MemoryError):
            [pool.acquire(8 * MIB, timeout=0.01) for _ in range(2)]
        for lease in held:
            lease.release()
            lease.release()
        with pytest.raises(ValueError):
            held[0].buffer
    with pytest.raises(RuntimeError):
        pool.acquire(1)
    for bad in ({"alignment": 3}, {"min_size_class": 0}):
        with pytest.raises(ValueError):
            BufferPool(store, **bad)


def test_memory_for_sharing_with_a_client_of_this_host():
    from mooncake.store import MooncakeHostMemAllocator
    allocator = MooncakeHostMemAllocator()
    address = allocator.alloc(MIB)
    assert address != 0
    import ctypes
    ctypes.memmove(address, b"x" * MIB, MIB)
    assert ctypes.string_at(address + MIB - 1, 1) == b"x"
    assert allocator.free(address) == 0
    assert allocator.free(4096) == -600


def test_binding_to_a_numa_node_never_raises():
    from mooncake.store import bind_to_numa_node
    before = os.sched_getaffinity(0)
    bind_to_numa_node(99999)
    assert os.sched_getaffinity(0) == before
    bind_to_numa_node(0)
    os.sched_setaffinity(0, before)


def test_functions_for_a_pluggable_allocator():
    import ctypes
    from mooncake.store import get_alloc_func_addr, get_free_func_addr
    alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)(
        get_alloc_func_addr())
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int,
                            ctypes.c_void_p)(get_free_func_addr())
    address = alloc(MIB, 0, None)
    ctypes.memmove(address, b"y" * MIB, MIB)
    free(address, MIB, 0, None)


# ---- keys ---------------------------------------------------------------------------------------

def test_keys_of_blocks():
    import yuebing
    tokens = list(range(1000))
    keys = yuebing.block_keys(tokens, 16)
    assert len(keys) == 62 and len(set(keys)) == 62 and {len(k) for k in keys} == {16}
    assert yuebing.block_keys(tokens[:500], 16) == keys[:31]
    assert yuebing.block_keys(tokens, 16, "model")[0] != keys[0]
    changed = [*tokens[:20], 7, *tokens[21:]]
    assert yuebing.block_keys(changed, 16)[0] == keys[0]
    assert not set(yuebing.block_keys(changed, 16)[1:]) & set(keys)
    for bad in ([1 << 32], [-1]):
        with pytest.raises((ValueError, TypeError)):
            yuebing.block_keys(bad, 1)
    with pytest.raises(ValueError):
        yuebing.block_keys(tokens, 0)


# ---- tensors ------------------------------------------------------------------------------------

def test_tensors(store, tmp_path):
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8):
        tensor = torch.arange(24).reshape(2, 3, 4).to(dtype)
        key = f"t-{dtype}"
        assert store.put_tensor(key, tensor) == 0
        got = store.get_tensor(key)
        assert got.dtype == dtype and torch.equal(got, tensor)
    tensor = torch.arange(24.0).reshape(4, 6)
    memory = Memory(4096)
    assert store.put_tensor("k", tensor) == 0
    got = store.get_tensor_into("k", memory.ptr, 4096)
    assert torch.equal(got, tensor)
    assert store.put_tensor_from("l", memory.ptr, store.get_size("k")) == 0
    assert torch.equal(store.get_tensor("l"), tensor)
    assert store.put_tensor_from("m", memory.ptr, 10) == -600
    assert store.get_tensor("missing") is None
    assert store.batch_put_tensor(["a", "b"], [tensor, tensor + 1]) == [0, 0]
    assert torch.equal(store.batch_get_tensor(["a", "b", "c"])[1], tensor + 1)
    assert store.put_tensor_with_tp("s", tensor, tp_size=2, split_dim=1) == 0
    parts = [store.get_tensor_with_tp("s", rank, 2, 1) for rank in range(2)]
    assert torch.equal(torch.cat(parts, 1), tensor) and store.is_exist("s_tp_1") == 1
    assert store.upsert_tensor("k", tensor * 2) == 0
    assert torch.equal(store.get_tensor("k"), tensor * 2)
    path = str(tmp_path / "x.safetensors")
    assert store.save_tensor_to_safetensor("k", path) == 0
    assert torch.equal(store.load_tensor_from_safetensor("again", file_name=path), tensor * 2)
    assert store.save_tensor_to_safetensor("missing", path) == -1100
    assert store.put("plain", pattern(1000, 1)) == 0 and store.get_tensor("plain") is None
    empty = torch.empty((0, 3))
    assert store.put_tensor("e", empty) == 0 and store.get_tensor("e").shape == (0, 3)
