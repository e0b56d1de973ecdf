# SPDX-License-Identifier: Apache-2.0
"""LMCache: the remote connector mooncakestore://, over its own memory of the CPU."""
import asyncio
import threading

FILES = ("lmcache.v1.storage_backend.connector.mooncakestore_connector",
         "lmcache.v1.storage_backend.connector.mooncakestore_adapter")

LAYERS = 4
CHUNK = 64
HEADS = 4
HEAD_SIZE = 32
CHUNK_BYTES = 2 * LAYERS * CHUNK * HEADS * HEAD_SIZE * 4


class Role:
    def __init__(self, master, segment, save_chunk_meta, timeout=30):
        import torch
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.metadata import LMCacheMetadata
        from lmcache.v1.storage_backend.connector import mooncakestore_connector
        from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=CHUNK, local_cpu=True, max_local_cpu_size=0.25,
            remote_url=f"mooncakestore://{master}/", extra_config={
                "save_chunk_meta": save_chunk_meta, "local_hostname": "127.0.0.1",
                "metadata_server": "P2PHANDSHAKE", "protocol": "tcp", "device_name": "",
                "mooncake_master_server_addr": master, "global_segment_size": segment,
                "local_buffer_size": 64 << 20, "transfer_timeout": timeout,
                "mooncake_prefer_local_alloc": False})
        metadata = LMCacheMetadata(
            model_name="org/tiny", world_size=1, local_world_size=1, worker_id=0,
            local_worker_id=0, kv_dtype=torch.float32,
            kv_shape=(LAYERS, 2, CHUNK, HEADS, HEAD_SIZE), chunk_size=CHUNK)
        self.dtype = torch.float32
        self.backend = LocalCPUBackend(config, metadata)
        self.metadata = metadata
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.connector = mooncakestore_connector.MooncakestoreConnector(
            self.loop, self.backend, config)

    def registered(self):
        return self.connector.registered_buffer_ptr is not None

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def _key(self, name):
        import hashlib
        from lmcache.utils import CacheEngineKey
        digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
        return CacheEngineKey("org/tiny", 1, 0, digest, self.dtype)

    def _object(self, name, tokens):
        from memory import pattern
        found = self.backend.allocate(self.metadata.get_shapes(tokens), self.metadata.get_dtypes(),
                                      self.connector.meta_fmt)
        import torch
        data = torch.frombuffer(bytearray(pattern(name, found.get_size())), dtype=torch.uint8)
        found.raw_tensor[:data.numel()].copy_(data)
        return found

    async def _put_all(self, names, tokens, batched):
        objects = [self._object(n, tokens) for n in names]
        keys = [self._key(n) for n in names]
        if batched:
            await self.connector.batched_put(keys, objects)
        else:
            await asyncio.gather(*(self.connector.put(k, o)
                                   for k, o in zip(keys, objects, strict=True)))
        for one in objects:
            one.ref_count_down()

    def put(self, names, tokens=CHUNK, batched=False):
        self._run(self._put_all(names, tokens, batched))

    def contains(self, names):
        return self._run(self.connector.batched_async_contains("lookup",
                                                               [self._key(n) for n in names]))

    async def _get_all(self, names, tokens, singly):
        keys = [self._key(n) for n in names]
        if singly:
            objects = [o[0] for o in await asyncio.gather(
                *(self.connector.batched_get([k]) for k in keys))]
        else:
            objects = await self.connector.batched_get(keys)
        return [self._judge(n, o, tokens) for n, o in zip(names, objects, strict=True)]

    def _judge(self, name, found, tokens):
        from memory import pattern
        if found is None:
            return "missing"
        size = CHUNK_BYTES // CHUNK * tokens
        same = bytes(found.byte_array) == pattern(name, size) and found.get_size() == size
        found.ref_count_down()
        return "right" if same else "wrong"

    def get(self, names, tokens=CHUNK, singly=False):
        """Of each name: right, wrong or missing."""
        return self._run(self._get_all(names, tokens, singly))

    def close(self):
        self._run(self.connector.close())
