#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The put and get rows of engine_calls.py on a key-value server: Redis, or LMCache's own.

    kv_server.py redis|lmcache PORT [--run-ms 300] [--quick]

A batch is one pipeline (Redis), or one message per key, as its client does it (LMCache). Values go
from and to memory that exists before, as far as the client allows: what a client's library
allocates is its own cost. The bytes are compared before a row is timed.
"""

import argparse
import json
import socket
import sys

from engine_calls import KIB, MIB, Memory, timed


class Redis:
    def __init__(self, port):
        import redis

        self.module = redis.__file__
        self.client = redis.Redis("127.0.0.1", port)

    def put(self, keys, values):
        pipe = self.client.pipeline(transaction=False)
        for key, value in zip(keys, values):
            pipe.set(key, value)
        pipe.execute()

    def get(self, keys):
        return self.client.mget(keys)


class LMCache:
    """LMCache's server speaks a protocol of its own, whose messages its package packs."""

    def __init__(self, port):
        import torch
        from lmcache.utils import CacheEngineKey
        from lmcache.v1 import protocol
        from lmcache.v1.memory_management import MemoryFormat

        self.module = protocol.__file__
        self.protocol, self.torch = protocol, torch
        self.format, self.key_type = MemoryFormat.KV_2LTD, CacheEngineKey
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def message(self, command, key, length):
        import inspect

        fields = inspect.signature(self.protocol.ClientMetaMessage).parameters
        name = next(n for n in fields if "command" in n)
        key_name = next(n for n in fields if n.startswith("key"))
        hashed = abs(hash(key)) & (2**63 - 1)
        given = {
            name: command, key_name: self.key_type("model", 1, 0, hashed, self.torch.uint8),
            "length": length, "fmt": self.format, "dtype": self.torch.uint8,
            "shape": self.torch.Size([length, 1, 1, 1]), "location": None,
        }
        return self.protocol.ClientMetaMessage(
            **{n: given[n] for n in fields if n in given}
        ).serialize()

    def receive(self, size):
        into = bytearray(size)
        view = memoryview(into)
        while view:
            got = self.socket.recv_into(view)
            if got == 0:
                raise RuntimeError("the server closed the connection")
            view = view[got:]
        return into

    def put(self, keys, values):
        for key, value in zip(keys, values):
            self.socket.sendall(self.message(self.protocol.ClientCommand.PUT, key, len(value)))
            self.socket.sendall(value)

    def get(self, keys):
        out = []
        for key in keys:
            self.socket.sendall(self.message(self.protocol.ClientCommand.GET, key, 0))
            head = self.receive(self.protocol.ServerMetaMessage.packlength())
            meta = self.protocol.ServerMetaMessage.deserialize(bytes(head))
            out.append(self.receive(meta.length))
        return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server", choices=["redis", "lmcache"])
    parser.add_argument("port", type=int)
    parser.add_argument("--run-ms", type=int, default=300)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    client = (Redis if args.server == "redis" else LMCache)(args.port)
    shapes = [(64 * KIB, 128), (1 * MIB, 64), (4 * MIB, 32)]
    if not args.quick:
        shapes = [(64 * KIB, 32), (256 * KIB, 128), (1 * MIB, 32), (4 * MIB, 32)]
    rows = []
    for size, batch in shapes:
        memory = Memory(size * batch)
        memory.fill(size)
        view = memoryview(memory.map)
        values = [view[i * size : (i + 1) * size] for i in range(batch)]
        keys = [f"bench@{size}@{i:064x}" for i in range(batch)]
        row = {"size": size, "batch": batch}
        try:
            client.put(keys, values)
            for value, got in zip(values, client.get(keys)):
                if got != value:
                    raise RuntimeError("the bytes differ")
            put = timed(args.run_ms, lambda _: client.put(keys, values))
            get = timed(args.run_ms, lambda _: client.get(keys))
            for call, seconds in (("batch_put_from", put), ("batch_get_into", get)):
                speed = round(size * batch / seconds / 1e9, 4)
                rows.append(dict(row, call=call, value=speed, unit="GB/s"))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            rows += [dict(row, call=c, error=text) for c in ("batch_put_from", "batch_get_into")]
        print(f"  {rows[-2:]}", file=sys.stderr, flush=True)
    print(json.dumps({"module": client.module, "rows": rows}), flush=True)


if __name__ == "__main__":
    main()
