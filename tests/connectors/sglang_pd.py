# SPDX-License-Identifier: Apache-2.0
"""SGLang: its wrapper of the transfer engine, through which prefill writes to decode."""

FILES = ("sglang.srt.distributed.device_communicators.mooncake_transfer_engine",)


class Role:
    def __init__(self, kind, pieces, size):
        from memory import Table
        from sglang.srt.distributed.device_communicators import mooncake_transfer_engine
        self.engine = mooncake_transfer_engine.MooncakeTransferEngine("127.0.0.1", 0, None)
        self.table = Table(kind, pieces, size)
        if self.engine.batch_register([self.table.base], [pieces * size]) != 0:
            raise RuntimeError("batch_register failed")
        self.extra = Table(kind, 1, size)
        self.engine.register(self.extra.base, size)
        self.engine.deregister(self.extra.base)

    def where(self):
        return {"session": self.engine.get_session_id(), "base": self.table.base}

    def again(self):
        """A range that is registered already: an error, and no harm."""
        return self.engine.batch_register([self.table.base], [self.table.size])

    def fill(self, names):
        for place, name in enumerate(names):
            self.table.fill(place, name)

    def write(self, session, base, places, batch):
        """Pieces go to the same places over there."""
        size = self.table.size
        here = [self.table.at(p) for p in places]
        there = [base + p * size for p in places]
        if batch:
            return self.engine.batch_transfer_sync(session, here, there, [size] * len(places))
        return [self.engine.transfer_sync(session, h, t, size)
                for h, t in zip(here, there, strict=True)]

    def write_at_once(self, session, base, threads, each):
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(
                lambda t: self.write(session, base, list(range(t * each, (t + 1) * each)), True),
                range(threads)))

    def probe(self, session):
        return self.engine.send_probe(session)

    def wrong(self, names):
        return self.table.wrong(range(len(names)), names)

    def device_copies(self):
        return self.table.memory.copies()
