# SPDX-License-Identifier: Apache-2.0
"""vLLM: MooncakeConnector's worker, as the prefiller that pushes or the decoder that asks."""
import os

FILES = ("vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector",
         "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_utils")


class Role:
    def __init__(self, kind, role, blocks, workers, port, engine):
        import torch
        os.environ["VLLM_HOST_IP"] = "127.0.0.1"
        os.environ["VLLM_MOONCAKE_BOOTSTRAP_PORT"] = str(port)
        # The connector asks PyTorch for its device's number; PyTorch has none here.
        torch.accelerator.current_device_index = lambda: 0
        from vllm.distributed.kv_transfer.kv_connector.v1.mooncake import mooncake_connector
        from vllm_config import Caches, kv_cache_config, vllm_config
        self.module = mooncake_connector
        config = vllm_config("MooncakeConnector", role,
                             {"mooncake_protocol": "tcp", "num_workers": workers}, blocks)
        self.caches = Caches(kind, blocks)
        self.bootstrap = f"http://127.0.0.1:{port}"
        self.worker = mooncake_connector.MooncakeConnectorWorker(config, engine,
                                                                 kv_cache_config(blocks))
        self.worker.register_kv_caches(self.caches.tensors)
        self.done = set()
        self.sent = set()

    def offer(self, requests):
        """The prefiller: requests (transfer, places) are computed, and may be taken."""
        for transfer, places in requests:
            for index, place in enumerate(places):
                self.caches.fill(place, f"{transfer}/{index}")
            for ready in ([], [list(places)]):
                meta = self.module.MooncakeConnectorMetadata()
                meta.reqs_to_send[f"p-{transfer}"] = (transfer, ready)
                self.worker.start_load_kv(meta)

    def all_sent(self, transfers):
        from memory import until
        wanted = {f"p-{t}" for t in transfers}

        def finished():
            self.sent.update(self.worker.get_finished()[0] or ())
            return wanted <= self.sent

        until(finished, "not all requests were sent")

    def failed_send(self):
        """Waits for a transfer that failed."""
        from memory import until

        def failed():
            stats = self.worker.get_kv_connector_stats()
            return stats is not None and stats.data.get("num_failed_transfers")

        return until(failed, "no transfer was reported to have failed")

    def ask(self, engine, requests):
        """The decoder: requests (transfer, places) are wanted from a prefiller."""
        meta = self.module.MooncakeConnectorMetadata()
        for transfer, places in requests:
            meta.add_new_req(f"d-{transfer}", [list(places)], {
                "transfer_id": transfer, "remote_engine_id": engine,
                "remote_bootstrap_addr": self.bootstrap})
        self.worker.start_load_kv(meta)

    def take(self, requests):
        """Waits until what was asked for is there; places with errors or wrong bytes."""
        from memory import until
        wanted = {f"d-{t}" for t, _ in requests}

        def finished():
            self.done.update(self.worker.get_finished()[1] or ())
            return wanted <= self.done

        until(finished, "not all requests were received")
        errors = self.worker.get_block_ids_with_load_errors()
        wrong = []
        for transfer, places in requests:
            wrong += self.caches.wrong(places, [f"{transfer}/{i}" for i in range(len(places))])
        return {"errors": sorted(errors), "wrong": wrong}

    def device_copies(self):
        return self.caches.memory.copies()
