# SPDX-License-Identifier: Apache-2.0
"""Messages between processes: bytes and tensors, each answered once it was taken (`RpcInterface`).

A message is a head of fixed size, for a tensor what it is ("float32:2,3"), and its bytes; the answer
is one byte. Who can connect can send: the address belongs to a network that is trusted, and where
YUEBING_REQUIRE_AUTH forbids open ports no server is started.

Threads: one takes connections, each of them has its own, and `thread_count` callbacks run at once.
"""
import ctypes
import logging
import os
import select
import socket
import struct
import threading

log = logging.getLogger("mooncake.engine")

_HEAD = struct.Struct("<4sBxHQ")  # Magic, kind, bytes of what a tensor is, bytes.
_MAGIC = b"YBR1"
_DATA, _TENSOR = 0, 1
_TAKEN, _REFUSED = b"\0", b"\1"
_MESSAGE_BYTES_MAX = 1 << 34
_PIECE = 1 << 20  # Room grows with what has come, not with what was announced.
_CONNECTIONS_MAX = 1024
_OFF = ("", "0", "false", "no", "off")  # Anything else is taken for "yes".
_LISTEN_BY_DEFAULT = "0.0.0.0:8080"


class ReceivedData:
    """Bytes, and who sent them."""

    def __init__(self, source_address, data):
        self.source_address = source_address
        self.data_size = len(data)
        self._data = data

    def get_bytes(self):
        """A copy."""
        return bytes(self._data)

    def get_memory_view(self):
        """Not a copy."""
        return memoryview(self._data)


class ReceivedTensor:
    """A tensor's bytes in order, and what they are."""

    def __init__(self, source_address, data, shape, dtype):
        self.source_address = source_address
        self.shape = shape
        self.dtype = dtype
        self.total_bytes = len(data)
        self._data = data

    def get_data_size(self):
        """Bytes."""
        return self.total_bytes

    def get_data_as_bytes(self):
        """A copy."""
        return bytes(self._data)

    def get_memory_view(self):
        """Not a copy."""
        return memoryview(self._data)


def _split(address):
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)


def _receive(line, size):
    """Exactly so many bytes. ConnectionError where they end early."""
    data = bytearray()
    while len(data) < size:
        piece = line.recv(min(size - len(data), _PIECE))
        if not piece:
            raise ConnectionError("the connection ended in a message")
        data += piece
    return data


def _tensor_parts(tensor):
    """(owner, what it is, its bytes) of a tensor that torch, or something like it, made."""
    if not all(hasattr(tensor, name) for name in
               ("data_ptr", "numel", "element_size", "shape", "dtype")):
        raise ValueError(f"{type(tensor).__name__} is not a tensor")
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu().contiguous()
    told = f"{str(tensor.dtype).rpartition('.')[2]}:{','.join(str(int(n)) for n in tensor.shape)}"
    size = tensor.numel() * tensor.element_size()
    data = memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())) if size else b""
    return tensor, told.encode(), data


class _Server:
    """What listens, until it is stopped."""

    def __init__(self, address, threads, timeout, take_data, take_tensor):
        host, port = _split(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._take_data = take_data
        self._take_tensor = take_tensor
        self._timeout = timeout
        self._turns = threading.BoundedSemaphore(threads or os.cpu_count() or 1)
        self._lock = threading.Lock()
        self._lines = set()
        self._stopping = False
        self.ended = threading.Event()
        self._socket = socket.create_server((host, port), family=family)
        self.address = self._socket.getsockname()
        threading.Thread(target=self._accept, name="mooncake-rpc", daemon=True).start()

    def stop(self):
        with self._lock:
            self._stopping = True
            lines = list(self._lines)
        for line in (self._socket, *lines):
            try:
                line.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # It has ended by itself.
        self.ended.wait()

    def _accept(self):
        while True:
            try:
                line, (host, port, *_) = self._socket.accept()
            except OSError as error:
                if not self._stopping:
                    log.error("rpc: no connection is taken any more: %s", error)
                break
            with self._lock:
                fits = not self._stopping and len(self._lines) < _CONNECTIONS_MAX
                if fits:
                    self._lines.add(line)
            if fits:
                threading.Thread(target=self._serve, args=(line, f"{host}:{port}"),
                                 name="mooncake-rpc", daemon=True).start()
            else:
                line.close()
        self._socket.close()
        self.ended.set()

    def _serve(self, line, source):
        try:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                line.settimeout(None)
                first = line.recv(1)
                if not first:
                    break
                line.settimeout(self._timeout)
                line.sendall(self._take(line, first, source))
        except (OSError, ValueError) as error:
            if not self._stopping:
                log.warning("rpc: %s: %s", source, error)
        finally:
            with self._lock:
                self._lines.discard(line)
            line.close()

    def _take(self, line, first, source):
        head = first + _receive(line, _HEAD.size - 1)
        magic, kind, told_bytes, size = _HEAD.unpack(head)
        if magic != _MAGIC or kind not in (_DATA, _TENSOR) or size > _MESSAGE_BYTES_MAX:
            raise ValueError("this is not a message of RpcInterface")
        dtype, _, dims = _receive(line, told_bytes).decode("ascii").partition(":")
        shape = [int(size) for size in dims.split(",") if size]
        data = _receive(line, size)
        with self._turns:
            taken = self._take_tensor(ReceivedTensor(source, data, shape, dtype)) \
                if kind == _TENSOR else self._take_data(source, data)
        return _TAKEN if taken else _REFUSED


class RpcInterface:
    """Sends messages to others and, if it listens, hands theirs to a callback."""

    def __init__(self):
        self._settings = None
        self._server = None
        self._data_callback = None
        self._tensor_callback = None
        self._lock = threading.Lock()
        self._idle = {}  # Connections by address.

    def initialize(self, listen_address="", thread_count=0, timeout_seconds=30, pool_size=100):
        """What a server or a client needs; True."""
        self._settings = (listen_address, thread_count, timeout_seconds or None, pool_size)
        return True

    def initialize_client(self, pool_size=100, timeout_seconds=30):
        """As initialize, to send alone."""
        return self.initialize("", 0, timeout_seconds, pool_size)

    def initialize_server(self, listen_address, thread_count=8, timeout_seconds=30):
        """As initialize, to listen as well."""
        return self.initialize(listen_address, thread_count, timeout_seconds, 4)

    @property
    def listen_address(self):
        """Where it listens, "host:port"; "" if it does not."""
        if self._server is None:
            return ""
        host, port, *_ = self._server.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start_server(self):
        """Listen until another thread stops it. False: it cannot."""
        if not self.start_server_async():
            return False
        self._server.ended.wait()
        return True

    def start_server_async(self):
        """Listen on threads of its own. False, and a log line with the reason: it cannot."""
        if self._settings is None or self._server is not None:
            log.error("rpc: a server is initialized once, and started once")
            return False
        if os.environ.get("YUEBING_REQUIRE_AUTH", "").strip().lower() not in _OFF:
            log.error("rpc: YUEBING_REQUIRE_AUTH forbids this port, which anybody may use; unset "
                      "it, or send through TransferEngine")
            return False
        address, threads, timeout, _ = self._settings
        try:
            self._server = _Server(address or _LISTEN_BY_DEFAULT, threads, timeout,
                                   self._take_data, self._take_tensor)
        except (OSError, ValueError) as error:
            log.error("rpc: cannot listen on %s: %s", address or _LISTEN_BY_DEFAULT, error)
            return False
        return True

    def stop_server(self):
        """End the connections; messages that callbacks have are finished."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def set_data_receive_callback(self, callback, /):
        """Called with {"source", "data"} for bytes, and for tensors where those have no callback."""
        self._data_callback = callback

    def set_tensor_receive_callback(self, callback, /):
        """Called with a ReceivedTensor."""
        self._tensor_callback = callback

    def _take_data(self, source, data):
        """Hand bytes over. Whether there was somebody for them."""
        return self._hand_over(self._data_callback, source, {"source": source, "data": bytes(data)})

    def _take_tensor(self, tensor):
        """Hand a tensor over, or its bytes. Whether there was somebody for it."""
        if self._tensor_callback is None:
            return self._take_data(tensor.source_address, tensor.get_memory_view())
        return self._hand_over(self._tensor_callback, tensor.source_address, tensor)

    @staticmethod
    def _hand_over(callback, source, message):
        if callback is None:
            log.warning("rpc: a message of %s came, and no callback is set", source)
            return False
        try:
            callback(message)
        except Exception:  # A callback's fault is not the sender's.
            log.exception("rpc: the callback failed for a message of %s", source)
        return True

    def send_data(self, target_address, data):
        """0 once the other side has taken it, or -1 and a log line."""
        return self._send(target_address, _DATA, b"", memoryview(data).cast("B"))

    def send_tensor(self, target_address, tensor):
        """0 once the other side has taken it, or -1 and a log line."""
        try:
            owner, told, data = _tensor_parts(tensor)
        except ValueError as error:
            log.error("rpc: %s", error)
            return -1
        code = self._send(target_address, _TENSOR, told, data)
        del owner  # Until here: the bytes are its own.
        return code

    def send_data_async(self, target_address, data, loop):
        """A future of `loop`: 0, or RuntimeError."""
        return loop.run_in_executor(None, self._must, self.send_data, target_address, bytes(data))

    def send_tensor_async(self, target_address, tensor, loop):
        """A future of `loop`: 0, or RuntimeError. The tensor must stay as it is until then."""
        return loop.run_in_executor(None, self._must, self.send_tensor, target_address, tensor)

    @staticmethod
    def _must(send, target_address, what):
        if send(target_address, what) != 0:
            raise RuntimeError(f"rpc: {target_address} did not take the message")
        return 0

    def _send(self, address, kind, told, data):
        if self._settings is None:
            log.error("rpc: initialize comes before sending")
            return -1
        line = self._idle_line(address)
        try:
            line = line or socket.create_connection(_split(address), self._settings[2])
            line.sendall(_HEAD.pack(_MAGIC, kind, len(told), len(data)) + told)
            line.sendall(data)
            answer = line.recv(1)
            if not answer:
                raise ConnectionError("the connection ended without an answer")
        except (OSError, ValueError) as error:
            if line is not None:
                line.close()
            log.error("rpc: %s: %s", address, error)
            return -1
        with self._lock:
            idle = self._idle.setdefault(address, [])
            kept = len(idle) < self._settings[3]
            if kept:
                idle.append(line)
        if not kept:
            line.close()
        return 0 if answer == _TAKEN else -1

    def _idle_line(self, address):
        """A connection that nobody uses and the other side has not ended, or None.

        It is looked at before a message goes, which is then sent once: a message is never taken
        twice."""
        while True:
            with self._lock:
                idle = self._idle.get(address)
                if not idle:
                    return None
                line = idle.pop()
            if not select.select([line], [], [], 0)[0]:
                return line
            line.close()


def create_rpc_client(local_rank=0, world_size=1):
    """One that sends."""
    client = RpcInterface()
    client.initialize("", 0, 30, 10)
    return client


def create_rpc_server(local_rank=0, world_size=1):
    """One that listens on port 8080 of every address, once it is started."""
    server = RpcInterface()
    server.initialize(_LISTEN_BY_DEFAULT, 0, 30, 10)
    return server
