# SPDX-License-Identifier: Apache-2.0
"""Tensors put by one layout and got by another. Needs torch; is skipped without."""
import pytest
from conftest import Memory
from mooncake.store import ParallelAxis, ReadTarget, ReplicateConfig, TensorParallelism

torch = pytest.importorskip("torch")
INVALID = -600


def layout(*axes):
    made = TensorParallelism()
    made.axes = list(axes)
    return made


def tp(rank, size, split_dim):
    return ParallelAxis("tp", rank, size, split_dim)


def target(mode, of=None):
    made = ReadTarget()
    made.mode, made.parallelism = mode, of
    return made


class Writer:
    def __init__(self, rank, size, split_dim):
        self.rank, self.size, self.split_dim = rank, size, split_dim


WHOLE = torch.arange(8 * 12, dtype=torch.float32).reshape(8, 12)


def put_parts(store, key, size, split_dim, whole=WHOLE):
    for rank, part in enumerate(whole.chunk(size, split_dim)):
        assert store.put_tensor_with_parallelism(
            key, part, layout(tp(rank, size, split_dim))) == 0


def shard(store, key, rank, size, split_dim):
    return store.get_tensor_with_parallelism(
        key, target("shard", layout(tp(rank, size, split_dim))))


def test_without_a_layout_it_is_put_and_got_whole(store):
    assert store.put_tensor_with_parallelism("a", WHOLE) == 0
    for how in (None, target("as_stored"), target("full")):
        assert torch.equal(store.get_tensor_with_parallelism("a", how), WHOLE)
    assert store.get_tensor_with_parallelism("missing") is None
    assert shard(store, "a", 0, 2, 0) is None
    assert store.put_tensor_with_parallelism("a", WHOLE + 1) == 0  # The first one stays.
    assert torch.equal(store.get_tensor_with_parallelism("a"), WHOLE)
    assert store.upsert_tensor_with_parallelism("a", WHOLE + 1) == 0
    assert torch.equal(store.get_tensor_with_parallelism("a"), WHOLE + 1)


@pytest.mark.parametrize("put_size, put_dim", [(1, 0), (2, 0), (4, 0), (3, 1), (4, 1)])
def test_parts_are_read_by_any_layout(store, put_size, put_dim):
    put_parts(store, "b", put_size, put_dim)
    assert store.is_exist("b__parallelism_manifest") == 1
    assert [store.is_exist(f"b_tp_{rank}") for rank in range(put_size)] == [1] * put_size
    assert torch.equal(store.get_tensor_with_parallelism("b", target("full")), WHOLE)
    assert torch.equal(store.get_tensor_with_parallelism(
        "b", target("full", layout(tp(0, put_size, put_dim)))), WHOLE)
    for size, dim in ((1, 0), (2, 0), (8, 0), (2, 1), (6, 1)):
        for rank, part in enumerate(WHOLE.chunk(size, dim)):
            assert torch.equal(shard(store, "b", rank, size, dim), part)
    assert shard(store, "b", 0, 5, 1) is None  # 12 is not divisible.
    assert shard(store, "b", 0, 2, 2) is None
    assert store.get_tensor_with_parallelism("b", target("shard")) is None
    assert store.get_tensor_with_parallelism(
        "b", target("as_stored", layout(tp(0, put_size, put_dim)))) is None


def test_a_part_is_put_together_without_those_that_it_does_not_need(store):
    put_parts(store, "c", 4, 0)
    assert store.remove("c_tp_3", True) == 0
    assert torch.equal(shard(store, "c", 0, 2, 0), WHOLE[:4])
    assert shard(store, "c", 1, 2, 0) is None
    assert store.get_tensor_with_parallelism("c", target("full")) is None


def test_what_put_tensor_with_tp_split_is_read_too(store):
    assert store.put_tensor_with_tp("d", WHOLE, 0, 4, 0) == 0
    assert torch.equal(shard(store, "d", 1, 2, 0), WHOLE[4:])
    assert torch.equal(store.get_tensor_with_parallelism(
        "d", target("full", layout(tp(0, 4, 0)))), WHOLE)


def test_writers_give_their_parts_of_the_whole(store):
    assert store.put_tensor_with_parallelism("e", WHOLE, writer_partition=Writer(0, 2, 0)) == 0
    assert store.get_tensor_with_parallelism("e", target("full")) is None
    assert store.put_tensor_with_parallelism(
        "e", WHOLE, None, ReplicateConfig(), {"rank": 1, "size": 2, "split_dim": 0}) == 0
    assert store.is_exist("e__writer_1of2_sd0") == store.is_exist("e__writer_manifest") == 1
    assert torch.equal(store.get_tensor_with_parallelism("e", target("full")), WHOLE)
    assert torch.equal(shard(store, "e", 2, 4, 1), WHOLE[:, 6:9])
    for bad in ((0, 2, 0), Writer(2, 2, 0), Writer(0, 5, 0), Writer(0, 2, 2)):
        assert store.put_tensor_with_parallelism("f", WHOLE, writer_partition=bad) == INVALID
    assert store.put_tensor_with_parallelism(
        "f", WHOLE, layout(tp(0, 2, 0)), None, Writer(0, 2, 0)) == INVALID


def test_keys_tell_the_axes_in_their_order(store):
    stage = ParallelAxis("pp", 1, 2, None, None, 3)
    expert = ParallelAxis("ep", 1, 4, None, 7)
    for axes, key in (
        ([stage], "g__pp_1of2_sid3"),
        ([expert], "g__ep_1of4_eid7"),
        ([expert, tp(0, 2, 0)], "g__tp_0of2_sd0__ep_1of4_eid7"),
        ([tp(1, 2, 0), ParallelAxis("dp", 1, 2)], "g__dp_1of2__tp_1of2_sd0"),
    ):
        assert store.put_tensor_with_parallelism("g", WHOLE, layout(*axes)) == 0
        assert store.is_exist(key) == 1
        got = store.get_tensor_with_parallelism("g", target("shard", layout(*axes)))
        assert torch.equal(got, WHOLE)
    for bad in ([], [tp(0, 2, None)], [tp(2, 2, 0)], [tp(0, 2, 2)], [ParallelAxis("zz", 0, 2)],
                [tp(0, 2, 0), tp(1, 2, 0)], [ParallelAxis("ep", 0, 2)], [ParallelAxis("pp", 0, 2)],
                [ParallelAxis("ep", 0, 2, 0, 1)], [ParallelAxis("dp", 0, 2, 0)]):
        assert store.put_tensor_with_parallelism("h", WHOLE, layout(*bad)) == INVALID


def test_buffers_are_filled_and_emptied(store):
    memory = Memory(4096)
    put_parts(store, "i", 4, 0)
    for rank in range(2):
        got = store.get_tensor_with_parallelism_into(
            "i", memory.ptr, 4096, target("shard", layout(tp(rank, 2, 0))))
        assert torch.equal(got, WHOLE.chunk(2)[rank])
        size = store.get_size("i_tp_0") + WHOLE.chunk(2)[0].nbytes // 2
        assert store.put_tensor_from(f"i-{rank}", memory.ptr, size) == 0
        assert torch.equal(store.get_tensor(f"i-{rank}"), WHOLE.chunk(2)[rank])
    how = target("full")
    assert store.get_tensor_with_parallelism_into("i", memory.ptr, 400, how) is None
    assert store.batch_get_tensor_with_parallelism_into(["i"], [memory.ptr], [], [how]) == \
        [INVALID]
    whole = store.batch_get_tensor_with_parallelism_into(["i"], [memory.ptr], [4096], [how])[0]
    assert torch.equal(whole, WHOLE)
    size = store.get_size("i_tp_0") - WHOLE.nbytes // 4 + WHOLE.nbytes
    assert store.put_tensor_with_parallelism_from(
        "j", memory.ptr, size, layout(tp(0, 2, 0))) == 0
    assert [store.is_exist(f"j_tp_{rank}") for rank in range(2)] == [1, 1]
    assert torch.equal(shard(store, "j", 1, 2, 0), WHOLE[4:])
    assert store.batch_upsert_tensor_with_parallelism_from(
        ["j", "k"], [memory.ptr] * 2, [size] * 2, [None, None], None,
        [None, Writer(0, 2, 0)]) == [0, 0]
    assert torch.equal(store.get_tensor("j"), WHOLE) and store.is_exist("k__writer_0of2_sd0") == 1
    assert store.put_tensor_with_parallelism_from("l", memory.ptr, 10) == INVALID
    assert store.put_tensor_with_parallelism_from(
        "l", memory.ptr, 10, layout(tp(0, 2, 0))) == INVALID


def test_batches_and_a_store_that_is_not_set_up(store):
    layouts = [None, layout(tp(0, 1, 0))]
    assert store.batch_put_tensor_with_parallelism(["m", "n"], [WHOLE] * 2, layouts) == [0, 0]
    assert store.batch_put_tensor_with_parallelism(["o", "p"], [WHOLE] * 2, [None]) == \
        [INVALID] * 2
    got = store.batch_get_tensor_with_parallelism(
        ["m", "n", "q"], [None, target("shard", layouts[1]), None])
    assert torch.equal(got[0], WHOLE) and torch.equal(got[1], WHOLE) and got[2] is None
    assert store.batch_get_tensor_with_parallelism(["m"], []) == [None]
    assert store.batch_upsert_tensor_with_parallelism(["m"], [WHOLE * 2]) == [0]
    assert torch.equal(store.get_tensor("m"), WHOLE * 2)
    closed = type(store)()
    assert closed.put_tensor_with_parallelism("r", WHOLE) == INVALID
    assert closed.get_tensor_with_parallelism("r") is None
    assert closed.batch_put_tensor_with_parallelism(["r"], [WHOLE]) == [INVALID]
    assert closed.batch_get_tensor_with_parallelism_into(["r"], [1], [1]) == [INVALID]
