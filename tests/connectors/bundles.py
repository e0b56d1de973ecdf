# SPDX-License-Identifier: Apache-2.0
"""The known package's containers of a trainer's objects, which are Python over the store's calls.

Our package does not have these files. They are taken from the known one's wheel (setup.sh), and
found by their own names because their folder is put behind ours.
"""
import os

import mooncake

mooncake.__path__.append(os.path.join(os.environ["CONNECTORS_KNOWN"], "mooncake"))

FILES = ("mooncake.structured_object_store", "mooncake.dataproto_catalog")

ROWS = 64
WIDTH = 4096


def _columns(name):
    """Columns of several kinds, whose bytes tell the name."""
    import numpy as np
    from memory import pattern
    whole = np.frombuffer(pattern(name, ROWS * WIDTH * 4), dtype=np.int32).reshape(ROWS, WIDTH)
    return {"ids": whole, "scores": whole[:, :7].astype(np.float64),
            "texts": [f"{name} {row}" for row in range(ROWS)], "counts": list(range(ROWS))}


def _wrong(got, wanted):
    """Of which columns the values are not those."""
    import numpy as np
    return [key for key, value in wanted.items()
            if key not in got or not np.array_equal(np.asarray(got[key]), np.asarray(value))]


class Role:
    def __init__(self, master, segment):
        from mooncake import structured_object_store as containers
        from mooncake.store import MooncakeDistributedStore
        store = MooncakeDistributedStore()
        code = store.setup("127.0.0.1", "P2PHANDSHAKE", segment, 32 << 20, "tcp", "", master)
        if code != 0:
            raise RuntimeError(f"setup: {code}")
        self.containers = containers
        self.transfer = containers.MooncakeBundleTransfer(store)

    def put(self, name, copy_mode, chunk_bytes):
        """A whole object; what finds it again."""
        import dataclasses
        policy = self.containers.BundleTransferPolicy(copy_mode=copy_mode, max_inflight_put=4)
        columns = _columns(name)
        return dataclasses.asdict(self.transfer.put_object(
            {key: columns[key] for key in ("ids", "scores")}, policy=policy,
            chunk_bytes=chunk_bytes))

    def wrong(self, name, ref):
        columns = _columns(name)
        got = self.transfer.get_object(self.containers.RemoteBundleRef(**ref))
        return _wrong(got, {key: columns[key] for key in ("ids", "scores")})

    def remove(self, ref):
        self.transfer.remove_bundle(self.containers.RemoteBundleRef(**ref))

    def put_rows(self, name):
        """Rows of a trainer, in two stages; what finds them again."""
        columns = _columns(name)
        ref = self.transfer.put(columns, type="dict")
        more = {"more": _columns(name + " more")["ids"]}
        envelope = self.containers._flat_dict_to_envelope(more, None)
        ref = self.transfer.append_dataproto_fields(ref, envelope, stage="second")
        return self.containers.export_dataproto_ref(ref)

    def wrong_rows(self, name, handle, rows):
        """`rows`: None, [first, end], or the numbers of some."""
        ref = self.containers.import_dataproto_ref(handle)
        columns = _columns(name)
        columns["more"] = _columns(name + " more")["ids"]
        if rows is None:
            return _wrong(self.transfer.get(ref, type="dict"), columns)
        got = self.transfer.get(ref, type="dict", rows=rows)
        return _wrong(got, {key: [value[row] for row in rows] for key, value in columns.items()})
