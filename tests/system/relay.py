# SPDX-License-Identifier: Apache-2.0
"""A relay between a peer and an address: passes on, holds, spoils, cuts."""
import socket
import struct
import threading

from yuebing import DEADLINE_S, split


class Relay:
    """Between a peer and an address: passes on, holds, spoils, cuts."""

    def __init__(self, target, watch=None):
        """`watch(link, data)` hears what peers send."""
        self.target = split(target)
        self.watch = watch or (lambda link, data: None)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.links = []
        self.flowing = threading.Event()
        self.flowing.set()
        self.spoils = threading.Event()
        self.ended = False
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended = True
        self.flowing.set()
        self.listener.close()
        self.cut()

    def _accept(self):
        while not self.ended:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target, DEADLINE_S)
            except OSError:
                near.close()
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.settimeout(None)
            with self.lock:
                self.links.append((near, far))
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, sink, source is far),
                                 daemon=True).start()

    def _pass(self, source, sink, answers):
        try:
            while data := source.recv(1 << 16):
                self.flowing.wait()
                if not answers:
                    self.watch(source, data)
                if answers and self.spoils.is_set():
                    self.spoils.clear()
                    data = bytes([data[0] ^ 1]) + data[1:]
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def hold(self):
        self.flowing.clear()

    def release(self):
        self.flowing.set()

    def spoil(self):
        """Change the first byte of what the target sends next."""
        self.spoils.set()

    def cut(self):
        """Reset everything that is there."""
        with self.lock:
            links, self.links = self.links, []
        for link in links:
            for end in link:
                try:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                end.close()
