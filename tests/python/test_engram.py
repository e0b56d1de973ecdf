# SPDX-License-Identifier: Apache-2.0
"""Embedding tables in the store: EngramStore."""
import subprocess
import sys

import numpy
import pytest
from conftest import DEADLINE_S, set_up
from mooncake.store import EngramStore, EngramStoreConfig

ROWS, DIM, LAYER = [50, 7, 300], 6, 3
READER = """
import hashlib, json, sys
import numpy
from mooncake.store import EngramStore, EngramStoreConfig, MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", sys.argv[1]) == 0
config = EngramStoreConfig()
config.table_vocab_sizes, config.embedding_dim = json.loads(sys.argv[2]), int(sys.argv[3])
ids = numpy.array(json.loads(sys.argv[4]))
found = EngramStore(int(sys.argv[5]), config, store).lookup(ids)
print(hashlib.sha256(found.tobytes()).hexdigest())
store.close()
"""


def config(rows=ROWS, dim=DIM):
    made = EngramStoreConfig()
    made.table_vocab_sizes = rows
    made.embedding_dim = dim
    return made


@pytest.fixture
def tables():
    random = numpy.random.default_rng(7)
    return [random.random((rows, DIM), dtype=numpy.float32) for rows in ROWS]


def test_a_lookup_gives_the_rows_that_were_populated(store, tables):
    engram = EngramStore(LAYER, config(), store)
    engram.populate(tables)
    assert engram.get_store_keys() == ["engram:l3:h0", "engram:l3:h1", "engram:l3:h2"]
    for key, table in zip(engram.get_store_keys(), tables):
        assert store.get(key) == table.tobytes()
    random = numpy.random.default_rng(8)
    ids = numpy.stack([random.integers(0, rows, (4, 17)) for rows in ROWS], axis=2)
    found = engram.lookup(ids)
    assert found.shape == (4, 17, len(ROWS), DIM) and found.dtype == numpy.float32
    for head, table in enumerate(tables):
        assert numpy.array_equal(found[:, :, head], table[ids[:, :, head]])
    assert numpy.array_equal(engram.lookup(ids.tolist()), found)
    assert numpy.array_equal(engram.lookup(ids.astype(numpy.int32)[::-1]), found[::-1])
    assert engram.lookup(numpy.zeros((0, 3, len(ROWS)), dtype=int)).shape == (0, 3, len(ROWS), DIM)


def test_another_process_finds_the_same_rows(master, store, tables):
    import hashlib
    import json
    EngramStore(LAYER, config(), store).populate(tables)
    ids = [[[0, 6, 299], [49, 0, 1]], [[7, 3, 150], [7, 3, 150]]]
    told = subprocess.run(
        [sys.executable, "-c", READER, master, json.dumps(ROWS), str(DIM), json.dumps(ids),
         str(LAYER)], stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=True).stdout
    at = numpy.array(ids)
    want = numpy.stack([table[at[:, :, head]] for head, table in enumerate(tables)], axis=2)
    assert told.strip() == hashlib.sha256(want.tobytes()).hexdigest()


def test_tables_are_put_once_and_all_or_none(store, tables):
    engram = EngramStore(LAYER, config(), store)
    assert store.put("engram:l3:h1", b"somebody's") == 0
    with pytest.raises(RuntimeError, match="-705"):
        engram.populate(tables)
    assert store.batch_is_exist(engram.get_store_keys()) == [0, 1, 0]
    assert store.remove("engram:l3:h1", force=True) == 0
    engram.populate(tables)
    with pytest.raises(RuntimeError, match="populate failed"):
        engram.populate([table + 1 for table in tables])
    assert store.get("engram:l3:h0") == tables[0].tobytes()


def test_removing_counts_what_was_there(store, tables):
    engram = EngramStore(LAYER, config(), store)
    assert engram.remove_from_store() == 0
    engram.populate(tables)
    assert store.is_exist("engram:l3:h0") == 1  # It is leased now.
    with pytest.raises(RuntimeError, match="rc=-706"):
        engram.remove_from_store()
    assert engram.remove_from_store(force=True) == len(ROWS)
    with pytest.raises(RuntimeError, match="-704"):
        engram.lookup([[[0, 0, 0]]])


@pytest.mark.parametrize("wrong, error", [
    ([[[50, 0, 0]]], "has 50 rows"), ([[[0, -1, 0]]], "has 7 rows"), ([[[0, 0]]], "row_ids is"),
    ([], "must not be empty"), ([[[0, 0, 0]], [[0, 0, 0], [0, 0, 0]]], "lookup failed"),
])
def test_rows_that_are_not_are_refused_before_anything_is_read(store, tables, wrong, error):
    engram = EngramStore(LAYER, config(), store)
    engram.populate(tables)
    with pytest.raises(RuntimeError, match=error):
        engram.lookup(wrong)


def test_tables_of_another_form_are_refused(store, tables):
    engram = EngramStore(LAYER, config(), store)
    for wrong in (tables[:2], tables[::-1], [table.ravel() for table in tables],
                  [table.tolist() for table in tables]):
        with pytest.raises(RuntimeError):
            engram.populate(wrong)
    assert store.batch_is_exist(engram.get_store_keys()) == [0, 0, 0]
    engram.populate([table.astype(numpy.float64) for table in tables])  # Made float32.
    assert store.get("engram:l3:h2") == tables[2].tobytes()


def test_a_configuration_that_cannot_be_is_refused():
    for wrong in (config([]), config([5, 0]), config([-1]), config([5], 0)):
        with pytest.raises(ValueError, match="EngramStoreConfig"):
            EngramStore(0, wrong)
    with pytest.raises(RuntimeError, match="not a MooncakeDistributedStore"):
        EngramStore(0, config(), 5)
    for call in ("lookup", "populate", "remove_from_store"):
        argument = {"lookup": ([[[0, 0, 0]]],), "remove_from_store": (),
                    "populate": ([numpy.zeros((n, DIM)) for n in ROWS],)}[call]
        with pytest.raises(RuntimeError, match="without a store"):
            getattr(EngramStore(0, config()), call)(*argument)


def test_a_store_that_is_closed_fails_every_call(own_master, tables):
    store = set_up(own_master.address)
    engram = EngramStore(LAYER, config(), store)
    store.close()
    for call in (lambda: engram.populate(tables), lambda: engram.lookup([[[0, 0, 0]]]),
                 engram.remove_from_store):
        with pytest.raises(RuntimeError):
            call()
