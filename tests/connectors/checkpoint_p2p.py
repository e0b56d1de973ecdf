# SPDX-License-Identifier: Apache-2.0
"""checkpoint-engine: the P2P store, from which ranks read each other's weights."""
import os

FILES = ("checkpoint_engine.p2p_store",)


class _Devices:
    """Its DeviceManager knows only CUDA and NPU devices, and their network cards."""

    transfer_engine_protocol = "tcp"

    class device_module:
        @staticmethod
        def device_count():
            return 1

    @staticmethod
    def rdma_device(_):
        return ""


class Role:
    def __init__(self, kind, rank, pieces, size):
        from memory import Table
        os.environ["RANK"] = str(rank)
        from checkpoint_engine import p2p_store
        # It asks the route to the internet for its address; these ranks are on one machine.
        p2p_store.get_ip = lambda: "127.0.0.1"
        self.store = p2p_store.P2PStore(_Devices())
        self.table = Table(kind, pieces, size)
        self.store.register_named_tensors({"bucket": self.table.tensor})

    def where(self):
        return {"session": self.store.addr, "base": self.table.base}

    def fill(self, names):
        for place, name in enumerate(names):
            self.table.fill(place, name)

    def read(self, session, base, places):
        """Pieces from the same places over there."""
        size = self.table.size
        self.store.batch_transfer_sync_read(session, [self.table.at(p) for p in places],
                                            [base + p * size for p in places],
                                            [size] * len(places))

    def read_at_once(self, session, base, threads, each):
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(
                lambda t: self.read(session, base, list(range(t * each, (t + 1) * each))),
                range(threads)))

    def wrong(self, names):
        return self.table.wrong(range(len(names)), names)

    def leave(self):
        """Take the tensor back, and register it again."""
        count = self.store.unregister_named_tensors(["bucket"])
        self.store.register_named_tensors({"bucket": self.table.tensor})
        return count

    def device_copies(self):
        return self.table.memory.copies()
