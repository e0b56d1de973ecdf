# SPDX-License-Identifier: Apache-2.0
"""SGLang: MooncakeStore, the third level of its hierarchical cache, with its own host pool."""

FILES = ("sglang.srt.mem_cache.storage.mooncake_store.mooncake_store",)

PAGE_TOKENS = 16
LAYERS = 4
HEADS = 4
HEAD_SIZE = 64
HALF = PAGE_TOKENS * LAYERS * HEADS * HEAD_SIZE * 2  # Keys, or values, of a page in float16.
PAGE_BYTES = 2 * HALF


class Role:
    def __init__(self, master, kind, segment, pages, group_ids=False, tag="test"):
        import torch
        from memory import of
        from sglang.srt.mem_cache.device_pool_info import (KVBufferLayout, KVBuffers,
                                                       MHABufferInfo)
        from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
        from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
        from sglang.srt.mem_cache.storage.mooncake_store import mooncake_store
        self.memory = of(kind)
        size = pages * PAGE_TOKENS
        layer = [torch.empty(1, HEADS, HEAD_SIZE, dtype=torch.float16) for _ in range(LAYERS)]
        addresses = torch.tensor([t.data_ptr() for t in layer], dtype=torch.uint64)
        info = MHABufferInfo(
            buffers=KVBuffers(k=tuple(layer), v=tuple(layer), k_data_ptrs=addresses,
                              v_data_ptrs=addresses, layout=KVBufferLayout.NHD),
            page_size=PAGE_TOKENS, head_num=HEADS, head_dim=HEAD_SIZE, v_head_dim=HEAD_SIZE,
            dtype=torch.float16, device=torch.device("cpu"))
        self.pool = MHATokenToKVPoolHost(
            info, 1.0, 0, PAGE_TOKENS, "page_first", pin_memory=False, device="cpu",
            device_capacity_tokens=1, start_layer=0, end_layer=LAYERS, host_token_capacity=size)
        if kind == "device":
            # Its pool lies in host memory; a pool of a device is the same numbers, but elsewhere.
            self.pool.kv_buffer = self.memory.allocate(
                self.pool.kv_buffer.numel() * 2).view(torch.float16).view(
                    self.pool.kv_buffer.shape)
        self.store = mooncake_store.MooncakeStore(
            HiCacheStorageConfig(
                tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
                is_mla_model=False, enable_storage_metrics=True, is_page_first_layout=True,
                model_name="a/model",
                extra_config={"master_server_address": master, "local_hostname": "127.0.0.1",
                              "metadata_server": "P2PHANDSHAKE", "protocol": "tcp",
                              "global_segment_size": segment, "extra_backend_tag": tag,
                              "enable_group_semantics": group_ids}),
            self.pool)
        self.store.register_mem_pool_host(self.pool)

    def grouped(self):
        return self.store._can_use_group_semantics()

    def _indices(self, places):
        import torch
        return torch.cat([torch.arange(p * PAGE_TOKENS, (p + 1) * PAGE_TOKENS) for p in places])

    def _pieces(self, place):
        return self.pool.get_page_buffer_meta(self._indices([place]))

    def fill(self, place, name):
        from memory import pattern
        for i, (at, size) in enumerate(zip(*self._pieces(place), strict=True)):
            self.memory.write(at, pattern(f"{name}/{i}", size))

    def _wrong(self, place, name):
        from memory import pattern
        return any(self.memory.read(at, size) != pattern(f"{name}/{i}", size)
                   for i, (at, size) in enumerate(zip(*self._pieces(place), strict=True)))

    def put(self, keys, places):
        for key, place in zip(keys, places, strict=True):
            self.fill(place, key)
        return self.store.batch_set_v1(keys, self._indices(places))

    def get(self, keys, places):
        """Which pages came, and places of those whose bytes are wrong."""
        got = self.store.batch_get_v1(keys, self._indices(places))
        return {"got": got, "wrong": [p for p, k, ok in zip(places, keys, got, strict=True)
                                      if ok and self._wrong(p, k)]}

    def exists(self, keys):
        return self.store.batch_exists(keys)

    def at_once(self, threads, pages_each, prefix, put):
        """Threads that put, or get, keys of their own at the same time."""
        from concurrent.futures import ThreadPoolExecutor

        def one(thread):
            places = list(range(thread * pages_each, (thread + 1) * pages_each))
            keys = [f"{prefix}-{p}" for p in places]
            if put:
                return all(self.put(keys, places))
            found = self.get(keys, places)
            return all(found["got"]) and not found["wrong"]

        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(one, range(threads)))

    def clear(self):
        self.store.clear()

    def device_copies(self):
        return self.memory.copies()
