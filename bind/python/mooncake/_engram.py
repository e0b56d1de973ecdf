# SPDX-License-Identifier: Apache-2.0
"""Embedding tables in the store, of which a lookup reads single rows (`EngramStore`).

A table is one object of float32 rows, `engram:l<layer>:h<head>`. numpy is imported when a method
needs it.
"""
import operator

from yuebing import _native

_NOT_FOUND = _native.CODES["OBJECT_NOT_FOUND"]
_WANTED = ("get_into_ranges", "batch_put_session_start", "remove")  # Of a store.
_ITEM_BYTES = 4


class EngramStoreConfig:
    """How many rows each head's table has, and how many numbers a row."""

    def __init__(self):
        self.table_vocab_sizes = [1024]
        self.embedding_dim = 64


class EngramStore:
    """The tables of one layer, a table a head."""

    def __init__(self, layer_id, config, store=None):
        self._rows = [operator.index(rows) for rows in config.table_vocab_sizes]
        self._dim = operator.index(config.embedding_dim)
        if not self._rows:
            raise ValueError("EngramStoreConfig.table_vocab_sizes must not be empty")
        if min(self._rows) <= 0:
            raise ValueError("EngramStoreConfig.table_vocab_sizes must contain only positive values")
        if self._dim <= 0:
            raise ValueError("EngramStoreConfig.embedding_dim must be positive")
        if store is not None and not all(hasattr(store, name) for name in _WANTED):
            raise RuntimeError(f"EngramStore: {store!r} is not a MooncakeDistributedStore")
        self._store = store
        self._keys = [f"engram:l{operator.index(layer_id)}:h{head}"
                      for head in range(len(self._rows))]

    def get_table_vocab_sizes(self):
        """Rows of each head's table."""
        return list(self._rows)

    def get_store_keys(self):
        """Where the tables are in the store, by head."""
        return list(self._keys)

    def get_num_heads(self):
        """How many tables there are."""
        return len(self._rows)

    def get_embedding_dim(self):
        """Numbers in a row."""
        return self._dim

    def populate(self, embedding_buffers):
        """Put a table for each head, [rows, dim], all of them or none; RuntimeError where there is
        one already."""
        import numpy
        if len(embedding_buffers) != len(self._rows):
            raise RuntimeError("embedding_buffers size must match num_heads")
        tables = []
        for rows, table in zip(self._rows, embedding_buffers):
            if not isinstance(table, numpy.ndarray):
                raise RuntimeError("embedding_buffers must be NumPy arrays")
            if table.ndim != 2:
                raise RuntimeError("each embedding buffer must be 2D [N_h, D]")
            if table.shape != (rows, self._dim):
                raise RuntimeError("embedding buffer shape does not match "
                                   "get_table_vocab_sizes()/get_embedding_dim()")
            tables.append(numpy.ascontiguousarray(table, dtype=numpy.float32))
        store = self._ready("populate")
        codes = store.batch_put_session_start(self._keys, [table.nbytes for table in tables])
        begun = [key for key, code in zip(self._keys, codes) if code == 0]
        if len(begun) == len(self._keys):
            codes = store.batch_put_from_multi_buffer_ranges(
                self._keys, [[table.ctypes.data] for table in tables],
                [[table.nbytes] for table in tables], [[0] for _ in tables])
            if codes == [table.nbytes for table in tables]:
                codes = store.batch_put_session_end(self._keys)
                if not any(codes):
                    return
        if begun:
            store.batch_put_session_revoke(begun)
        raise RuntimeError(f"populate failed: {dict(zip(self._keys, codes))}")

    def lookup(self, row_ids):
        """The rows of [B, L, H] numbers, as an array of [B, L, H, D]."""
        ids = self._ids(row_ids)
        store = self._ready("lookup")
        import numpy
        found = numpy.empty((*ids.shape, self._dim), dtype=numpy.float32)
        if found.nbytes == 0:
            return found
        row = self._dim * _ITEM_BYTES
        heads = len(self._rows)
        # Head by head: where its rows are in the table, and where they go.
        into = [[(at * heads + head) * row for at in range(ids.size // heads)]
                for head in range(heads)]
        source = [(ids[:, :, head].ravel() * row).tolist() for head in range(heads)]
        code = store.register_buffer(found.ctypes.data, found.nbytes)
        if code != 0:
            raise RuntimeError(f"EngramStore lookup failed: register_buffer answers {code}")
        try:
            got = store.get_into_ranges([found.ctypes.data], [self._keys], [into], [source],
                                        [[[row] * len(offsets) for offsets in into]])
        finally:
            store.unregister_buffer(found.ctypes.data)
        for key, codes in zip(self._keys, got[0]):
            bad = [code for code in codes if code != row]
            if bad:
                raise RuntimeError(f"EngramStore lookup failed: {key} answers {bad[0]}")
        return found

    def _ids(self, row_ids):
        import numpy
        if isinstance(row_ids, numpy.ndarray):
            ids = row_ids.astype(numpy.int64)
        else:
            rows = [[list(heads) for heads in tokens] for tokens in row_ids]
            if not rows:
                raise RuntimeError("row_ids must not be empty")
            try:
                ids = numpy.array(rows, dtype=numpy.int64)
            except ValueError as error:
                raise RuntimeError(f"EngramStore lookup failed: {error}") from error
        if ids.ndim != 3 or ids.shape[2] != len(self._rows):
            raise RuntimeError(f"EngramStore lookup failed: row_ids is {ids.shape}, not "
                               f"[B, L, {len(self._rows)}]")
        outside = (ids < 0) | (ids >= numpy.array(self._rows))
        if outside.any():
            where = tuple(int(at) for at in numpy.argwhere(outside)[0])
            raise RuntimeError(f"EngramStore lookup failed: row_ids{list(where)} is {ids[where]}; "
                               f"that table has {self._rows[where[2]]} rows")
        return ids

    def remove_from_store(self, force=False):
        """How many tables were removed; those that are not there do not matter."""
        store = self._ready("remove_from_store")
        removed = 0
        for key in self._keys:
            code = store.remove(key, force)
            if code not in (0, _NOT_FOUND):
                raise RuntimeError(f"remove_from_store failed, rc={code}")
            removed += code == 0
        return removed

    def _ready(self, what):
        if self._store is None:
            raise RuntimeError(f"EngramStore {what} failed: it was made without a store")
        return self._store
