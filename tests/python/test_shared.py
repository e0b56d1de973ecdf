# SPDX-License-Identifier: Apache-2.0
"""Host memory that ranks share, and the port that a store opens."""
import ctypes
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from conftest import SETUP
from mooncake.engine import SharedSegment
from mooncake.shared_segment import SharedSegmentError, create_shared_segment
from mooncake.store import MooncakeDistributedStore

SIZE = 1 << 20
OTHER_RANK = """
import ctypes, json, sys
from mooncake.engine import SharedSegment
segment, blob = SharedSegment.create("kv", %d, 2, 1)
blobs = [json.loads(sys.stdin.readline()), blob.decode()]
print(json.dumps(blob.decode()), flush=True)
segment.complete(blobs)
got = ctypes.string_at(segment.base_addr() + 4096, 5)
ctypes.memmove(segment.base_addr() + 8192, b"hello " + got, 11)
print(json.dumps(segment.ready()), flush=True)
""" % SIZE


# ---- memory of a group --------------------------------------------------------------------------

def test_ranks_of_two_processes_share_one_segment():
    segment, blob = SharedSegment.create("kv", SIZE, 2, 0)
    ctypes.memmove(segment.base_addr() + 4096, b"first", 5)
    with subprocess.Popen([sys.executable, "-c", OTHER_RANK], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as other:
        other.stdin.write(json.dumps(blob.decode()) + "\n")
        other.stdin.flush()
        segment.complete([blob, json.loads(other.stdout.readline())])
        assert json.loads(other.stdout.readline()) is True
    assert segment.ready() and segment.size() == SIZE
    assert ctypes.string_at(segment.base_addr() + 8192, 11) == b"hello first"


def test_ranks_that_do_not_agree_are_told():
    segment, blob = SharedSegment.create("kv", SIZE, 2, 0)
    for other in (("kv", SIZE, 2, 0), ("kv", 2 * SIZE, 2, 1), ("kw", SIZE, 2, 1)):
        with pytest.raises(RuntimeError, match="rank"):
            segment.complete([blob, SharedSegment.create(*other)[1]])
    for blobs in ([blob], [blob, b"{}"], [blob, b"no json"], [blob, b"[1]"]):
        with pytest.raises(RuntimeError):
            segment.complete(blobs)


def test_an_owner_that_is_gone_is_not_mistaken_for_another():
    owner, blob = SharedSegment.create("kv", SIZE, 2, 0)
    second, mine = SharedSegment.create("kv", SIZE, 2, 1)
    owner.close()
    with pytest.raises(RuntimeError, match="owner"):
        second.complete([blob, mine])
    with open("/dev/zero", "rb") as file:  # Another one of that number.
        told = json.loads(blob)
        told["descriptor"] = file.fileno()
        with pytest.raises(RuntimeError):
            second.complete([json.dumps(told), mine])
    assert not second.ready() and second.base_addr() == 0


def test_segments_that_cannot_be():
    assert SharedSegment.supported() and not SharedSegment.supported(mmap=False)
    assert not SharedSegment.supported(host_register=True)
    for arguments in (("s", 0, 1, 0), ("s", 1, 0, 0), ("s", 1, 1, 1), ("s", 1, 1, 0, 1),
                      ("s", 1, 1, 0, 0, 0, False)):
        with pytest.raises(RuntimeError):
            SharedSegment.create(*arguments)


def test_blocks_are_tensors_on_the_segment():
    torch = pytest.importorskip("torch")
    blocks = {"v": {"count": 3, "shape": (5, 7), "dtype": torch.bfloat16},
              "k": {"count": 2, "shape": (4,), "dtype": torch.float32}}
    segment = create_shared_segment("kv", blocks, 1, 0)
    for name, block in blocks.items():
        for i, tensor in enumerate(segment.tensors(name)):
            tensor.fill_(i + 1)
        for i, tensor in enumerate(segment.tensors(name)):
            assert tuple(tensor.shape) == block["shape"] and tensor.dtype == block["dtype"]
            assert bool((tensor == i + 1).all()) and tensor.data_ptr() % 4096 == 0
    assert segment.size == 5 * 4096
    with pytest.raises(SharedSegmentError):
        segment.tensors("w")
    with pytest.raises(SharedSegmentError):
        create_shared_segment("kv", {}, 1, 0)
    with pytest.raises(SharedSegmentError):
        create_shared_segment("kv", blocks, 2, 0)
    with pytest.raises(SharedSegmentError):
        create_shared_segment("kv", blocks, 1, 0, mmap=False)


# ---- the port of a store ------------------------------------------------------------------------

def ask(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("by_name", [False, True])
def test_a_store_serves_its_health_and_its_metrics(master, by_name):
    store = MooncakeDistributedStore()
    port = free_port()
    if by_name:
        assert store.setup({"local_hostname": "127.0.0.1", "metadata_server": SETUP[0],
                            "master_server_addr": master, "enable_client_http_server": True,
                            "client_http_port": port}) == 0
    else:
        assert store.setup("127.0.0.1", *SETUP, master, enable_client_http_server=True,
                           client_http_port=port) == 0
    assert store.put("counted", b"value") == 0 and store.get("counted") == b"value"
    assert ask(port, "/health") == (200, "OK\n")
    code, text = ask(port, "/metrics")
    assert code == 200
    assert "yuebing_client_puts_total 1\n" in text and "yuebing_client_hits_total 1\n" in text
    assert "yuebing_client_healthy 1\n" in text
    assert ask(port, "/else")[0] == 404
    assert store.remove("counted", True) == 0
    assert store.close() == 0 and store.close() == 0
    with pytest.raises(OSError):
        ask(port, "/health")


def test_a_port_that_is_taken_leaves_the_store_working(master, caplog):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        store = MooncakeDistributedStore()
        assert store.setup("127.0.0.1", *SETUP, master, None, False, "", "default", True,
                           port) == 0
        assert str(port) in caplog.text
        assert store.health_check() == 0
        assert store.close() == 0


def test_no_port_is_opened_unless_it_is_asked_for(master):
    store = MooncakeDistributedStore()
    port = free_port()
    assert store.setup("127.0.0.1", *SETUP, master, client_http_port=port) == 0
    with pytest.raises(OSError):
        ask(port, "/health")
    store.close()
