# SPDX-License-Identifier: Apache-2.0
"""Messages between processes: RpcInterface."""
import asyncio
import ctypes
import socket
import subprocess
import sys
import threading

import pytest
from conftest import DEADLINE_S, pattern
from mooncake.engine import CoroRPCInterface, ReceivedTensor, RpcInterface, create_rpc_client

ECHO = """
import sys
from mooncake.engine import RpcInterface
server = RpcInterface()
server.initialize_server("127.0.0.1:0")
def back(message):
    where, _, data = message["data"].partition(b" ")
    assert server.send_data(where.decode(), data[::-1]) == 0
server.set_data_receive_callback(back)
assert server.start_server_async()
print(server.listen_address, flush=True)
sys.stdin.read()
server.stop_server()
"""


class Tensor:
    """What send_tensor asks of one."""

    def __init__(self, data, shape, dtype, element):
        self.raw = ctypes.create_string_buffer(data, max(len(data), 1))
        self.shape = shape
        self.dtype = dtype
        self._element = element
        self._count = len(data) // element

    def data_ptr(self):
        return ctypes.addressof(self.raw)

    def numel(self):
        return self._count

    def element_size(self):
        return self._element


@pytest.fixture
def server():
    made = RpcInterface()
    assert made.initialize_server("127.0.0.1:0", thread_count=4)
    assert made.start_server_async() and made.listen_address != ""
    yield made
    made.stop_server()


@pytest.fixture
def client():
    return create_rpc_client()


def test_bytes_of_any_length_arrive_whole_and_in_order(server, client):
    got = []
    server.set_data_receive_callback(got.append)
    sizes = (0, 1, 7, 4096, (1 << 20) - 1, 5 << 20)
    for size in sizes:
        assert client.send_data(server.listen_address, pattern(size, size)) == 0
    assert [message["data"] for message in got] == [pattern(size, size) for size in sizes]
    assert all(message["source"].startswith("127.0.0.1:") for message in got)


def test_two_processes_send_to_each_other(server):
    got, came = [], threading.Event()
    server.set_data_receive_callback(lambda message: (got.append(message["data"]), came.set()))
    with subprocess.Popen([sys.executable, "-c", ECHO], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as other:
        address = other.stdout.readline().strip()
        sent = pattern(300000, 3)
        assert server.send_data(address, server.listen_address.encode() + b" " + sent) == 0
        assert came.wait(DEADLINE_S) and got == [sent[::-1]]
        other.stdin.close()
        assert other.wait(DEADLINE_S) == 0
    assert server.send_data(address, b"gone") == -1


def test_a_tensor_comes_with_its_shape_and_type(server, client):
    got, plain = [], []
    data = pattern(24, 1)
    server.set_data_receive_callback(plain.append)
    assert client.send_tensor(server.listen_address, Tensor(data, (2, 3), "torch.float32", 4)) == 0
    assert plain[0]["data"] == data  # Nobody asked for tensors as such.
    server.set_tensor_receive_callback(got.append)
    assert client.send_tensor(server.listen_address, Tensor(data, (2, 3), "torch.float32", 4)) == 0
    assert client.send_tensor(server.listen_address, Tensor(b"", (0, 4), "torch.bool", 1)) == 0
    assert len(plain) == 1 and all(isinstance(one, ReceivedTensor) for one in got)
    assert [(one.shape, one.dtype, one.total_bytes) for one in got] == [
        ([2, 3], "float32", 24), ([0, 4], "bool", 0)]
    assert got[0].get_data_as_bytes() == data == got[0].get_memory_view().tobytes()
    assert client.send_tensor(server.listen_address, b"no tensor") == -1


def test_many_threads_of_one_client_lose_and_mix_nothing(server, client):
    got, lock = [], threading.Lock()

    def take(message):
        with lock:
            got.append(message["data"])

    def send(thread):
        for number in range(20):
            assert client.send_data(server.listen_address, pattern(10000 + number, thread)) == 0

    server.set_data_receive_callback(take)
    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    want = [pattern(10000 + number, thread) for thread in range(8) for number in range(20)]
    assert sorted(got) == sorted(want)


def test_a_future_ends_with_the_answer_or_an_error(server, client):
    got = []
    server.set_data_receive_callback(got.append)
    nobody = socket.create_server(("127.0.0.1", 0))
    address = "127.0.0.1:%d" % nobody.getsockname()[1]
    nobody.close()

    async def run():
        loop = asyncio.get_running_loop()
        assert await client.send_data_async(server.listen_address, b"later", loop) == 0
        tensor = Tensor(b"abcd", (4,), "torch.uint8", 1)
        assert await client.send_tensor_async(server.listen_address, tensor, loop) == 0
        with pytest.raises(RuntimeError, match="did not take"):
            await client.send_data_async(address, b"nobody", loop)

    asyncio.run(run())
    assert [message["data"] for message in got] == [b"later", b"abcd"]


def test_a_message_that_nobody_takes_is_refused_and_a_callback_may_fail(server, client):
    assert client.send_data(server.listen_address, b"no callback") == -1
    got = []

    def fail(message):
        got.append(message["data"])
        raise ZeroDivisionError

    server.set_data_receive_callback(fail)
    assert client.send_data(server.listen_address, b"1") == 0
    assert client.send_data(server.listen_address, b"2") == 0
    assert got == [b"1", b"2"]


def test_a_connection_that_the_other_side_has_ended_is_not_used_again(client):
    got = []
    for number in (1, 2):
        server = RpcInterface()
        address = "127.0.0.1:0" if number == 1 else where
        assert server.initialize_server(address)
        server.set_data_receive_callback(got.append)
        assert server.start_server_async()
        where = server.listen_address
        assert client.send_data(where, b"%d" % number) == 0
        server.stop_server()
        assert server.listen_address == ""
    assert [message["data"] for message in got] == [b"1", b"2"]
    assert client.send_data(where, b"3") == -1


def test_what_is_no_message_ends_its_connection_alone(server, client):
    got = []
    server.set_data_receive_callback(got.append)
    host, _, port = server.listen_address.rpartition(":")
    for wrong in (b"GET / HTTP/1.1\r\n\r\n",
                  b"YBR1\0\0\0\0" + b"\xff" * 8,               # Longer than anything may be.
                  b"YBR1\1\0\2\0" + bytes(8) + b"\xff\xff",     # A tensor of no known kind.
                  b"YBR1\1\0\5\0" + bytes(8) + b"f32:x"):
        with socket.create_connection((host, int(port)), DEADLINE_S) as line:
            line.sendall(wrong)
            try:
                assert line.recv(1) == b""
            except ConnectionResetError:
                pass  # It ended before it had read all.
    assert client.send_data(server.listen_address, b"fine") == 0
    assert [message["data"] for message in got] == [b"fine"]


def test_a_server_that_cannot_be_is_not_started(server, monkeypatch):
    made = CoroRPCInterface()
    assert made.send_data(server.listen_address, b"x") == -1 and not made.start_server()
    assert made.initialize_server(server.listen_address)  # Taken.
    assert not made.start_server_async() and made.listen_address == ""
    assert made.initialize("no address") and not made.start_server_async()
    monkeypatch.setenv("YUEBING_REQUIRE_AUTH", "1")
    assert made.initialize_server("127.0.0.1:0") and not made.start_server_async()
    made.stop_server()


def test_start_server_returns_once_another_thread_stops_it():
    server = RpcInterface()
    server.initialize_server("127.0.0.1:0")
    ended = []
    thread = threading.Thread(target=lambda: ended.append(server.start_server()))
    thread.start()
    while server.listen_address == "":
        threading.Event().wait(0.01)
    assert ended == []
    server.stop_server()
    thread.join(DEADLINE_S)
    assert ended == [True]
