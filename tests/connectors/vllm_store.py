# SPDX-License-Identifier: Apache-2.0
"""vLLM: MooncakeStoreConnector's worker, its threads and its lookup channel."""
import hashlib
import json
import os
import tempfile

FILES = ("vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.worker",
         "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.data",
         "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.coordinator",
         "vllm.distributed.mooncake_store")


def hashes(prompt, blocks):
    """Chained hashes of a prompt's blocks, as long as vLLM's own."""
    chain, last = [], prompt.encode()
    for _ in range(blocks):
        last = hashlib.sha256(last).digest()
        chain.append(last)
    return chain


class _Event:
    """torch.cuda.Event insists on a device. Here nothing computes, so there is nothing to wait for;
    vLLM's own CPU runner does the same."""

    def record(self):
        pass

    def synchronize(self):
        pass


class Role:
    def __init__(self, master, kind, segment, blocks, threads, channel, group_ids=False):
        import torch
        folder = tempfile.mkdtemp(prefix="yuebing-connectors-")
        path = os.path.join(folder, "mooncake.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"metadata_server": "P2PHANDSHAKE", "master_server_address": master,
                       "protocol": "tcp", "device_name": "", "local_buffer_size": "64MB",
                       "mode": "embedded" if segment else "standalone-store",
                       "global_segment_size": segment}, file)
        os.environ["MOONCAKE_CONFIG_PATH"] = path
        os.environ["VLLM_MOONCAKE_LOAD_RECV_THREADS"] = str(threads)
        import vllm.envs
        if hasattr(vllm.envs.__getattr__, "cache_clear"):
            vllm.envs.__getattr__.cache_clear()
        from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store import worker
        from vllm_config import BLOCK_TOKENS, Caches, kv_cache_config, vllm_config
        self.config = vllm_config(
            "MooncakeStoreConnector", "kv_both",
            {"lookup_rpc_port": channel, "enable_group_semantics": str(group_ids)}, blocks)
        torch.cuda.Event = _Event
        self.module = worker
        self.tokens = BLOCK_TOKENS
        self.caches = Caches(kind, blocks)
        self.worker = worker.MooncakeStoreWorker(self.config, kv_cache_config(blocks))
        self.worker.register_kv_caches(self.caches.tensors)
        self.client = worker.LookupKeyClient(self.config)
        self.jobs = 0

    def _names(self, prompt, blocks):
        return [h.hex() for h in hashes(prompt, blocks)]

    def _meta(self, requests):
        from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.data import (
            MooncakeStoreConnectorMetadata)
        meta = MooncakeStoreConnectorMetadata(set(), set())
        for request in requests:
            meta.add_request(request)
        return meta

    def _request(self, request, prompt, places, load):
        from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.data import (
            LoadSpec, ReqMeta)
        tokens = len(places) * self.tokens
        made = ReqMeta(req_id=request, token_len_chunk=tokens, block_ids=(list(places),),
                       block_hashes=hashes(prompt, len(places)), can_save=not load,
                       num_prompt_tokens=tokens, prefill_end_tokens=tokens)
        if load:
            made.load_spec = LoadSpec(0, tokens, True)
        else:
            self.jobs += 1
            made.store_job_id = self.jobs
        return made

    def save(self, requests, fill=True):
        """Requests are (id, prompt, places of blocks). The codes of puts that failed come back."""
        from memory import until
        made = []
        for request, prompt, places in requests:
            if fill:
                for place, name in zip(places, self._names(prompt, len(places)), strict=True):
                    self.caches.fill(place, name)
            made.append(self._request(request, prompt, places, False))
        self.worker.get_kv_connector_stats()
        self.worker.wait_for_save(self._meta(made))
        done = {}

        def finished():
            meta = self.worker.build_connector_worker_meta()
            if meta is not None:
                done.update(meta.completed_saves)
            return all(m.store_job_id in done for m in made)

        until(finished, "saves are not finished")
        thread = self.worker.kv_send_thread
        return {"pressure": thread._store_pressure_active,
                "skipped": sorted(thread._skip_store_requests),
                "stats": self._stats()}

    def _stats(self):
        """Keys and failed keys of each operation since the last time."""
        stats = self.worker.get_kv_connector_stats()
        return {operation: [sum(r["num_keys"] for r in records),
                            sum(r["num_failed_keys"] for r in records)]
                for operation, records in (stats.data if stats else {}).items()}

    def lookup(self, prompt, blocks):
        """How many blocks the scheduler is told to be in the store; it asks over its channel."""
        chain = hashes(prompt, blocks)
        tokens = blocks * self.tokens + 1
        return self.client.lookup("lookup", tokens, chain).hit_length // self.tokens

    def load(self, requests):
        """Load all at once; blocks with errors, and places whose bytes are wrong."""
        from memory import until
        made = [self._request(r, prompt, places, True) for r, prompt, places in requests]
        wanted = {m.req_id for m in made}
        meta = self._meta(made)
        self.worker.start_load_kv(meta)
        got = set()

        def finished():
            got.update(self.worker.get_finished(set(), meta)[1])
            return wanted <= got

        until(finished, "loads are not finished")
        errors = self.worker.get_block_ids_with_load_errors()
        wrong = []
        for _, prompt, places in requests:
            good = [(p, n) for p, n in zip(places, self._names(prompt, len(places)), strict=True)
                    if p not in errors]
            wrong += self.caches.wrong([p for p, _ in good], [n for _, n in good])
        return {"errors": sorted(errors), "wrong": wrong}

    def pin(self):
        """Somebody else's objects, which may not be evicted, take all the room that is left."""
        from mooncake.store import ReplicateConfig
        config = ReplicateConfig()
        config.with_hard_pin = True
        address, size = self.caches.pieces[-1]
        for i in range(4096):
            code = self.worker.store.put_from(f"pinned-{i}", address, size, config)
            if code != 0:
                return code
        return 0

    def reset(self):
        return self.client.reset()

    def device_copies(self):
        return self.caches.memory.copies()

    def close(self):
        self.worker.close()
