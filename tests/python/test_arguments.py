# SPDX-License-Identifier: Apache-2.0
"""Arguments, and what calls give before setup and after close: no other process is needed."""
import inspect

import pytest
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode
from mooncake.store import MooncakeDistributedStore, ReplicateConfig, SoftPinAction

INVALID = -600

# A call before setup, and what it gives.
BEFORE_SETUP = [
    ("close", (), 0),
    ("health_check", (), 1),
    ("get_hostname", (), ""),
    ("is_exist", ("k",), INVALID),
    ("batch_is_exist", (["a", "b"],), [INVALID, INVALID]),
    ("batch_is_exist", ([],), []),
    ("get_size", ("k",), INVALID),
    ("remove", ("k",), INVALID),
    ("batch_remove", (["a"],), [INVALID]),
    ("remove_by_regex", ("k.*",), INVALID),
    ("remove_all", (), INVALID),
    ("batch_replica_clear", (["a"],), []),
    ("put", ("k", b"v"), INVALID),
    ("put_parts", ("k", b"v", b"w"), INVALID),
    ("put_batch", (["k"], [b"v"]), INVALID),
    ("put_from", ("k", 4096, 1), INVALID),
    ("put_from_with_metadata", ("k", 4096, 4096, 1, 1), INVALID),
    ("batch_put_from", (["a", "b"], [4096, 4096], [1, 1]), [INVALID, INVALID]),
    ("batch_put_from_multi_buffers", (["a"], [[4096]], [[1]]), []),
    ("upsert", ("k", b"v"), INVALID),
    ("upsert_parts", ("k", b"v"), INVALID),
    ("upsert_batch", (["k"], [b"v"]), INVALID),
    ("upsert_from", ("k", 4096, 1), INVALID),
    ("batch_upsert_from", (["a"], [4096], [1]), [INVALID]),
    ("get", ("k",), b""),
    ("get_batch", (["a", "b"],), [b""]),
    ("get_buffer", ("k",), None),
    ("batch_get_buffer", (["a", "b"],), [None, None]),
    ("get_into", ("k", 4096, 1), INVALID),
    ("batch_get_into", (["a"], [4096], [1]), [INVALID]),
    ("batch_get_into_multi_buffers", (["a"], [[4096]], [[1]]), [INVALID]),
    ("batch_get_session_start", (["a"],), []),
    ("batch_get_into_multi_buffer_ranges", (["a"], [[4096]], [[1]], [[0]]), []),
    ("batch_get_session_end", (["a"],), -1),
    ("batch_put_session_start", (["a"], [1]), []),
    ("batch_put_from_multi_buffer_ranges", (["a"], [[4096]], [[1]], [[0]]), []),
    ("batch_put_session_end", (["a"],), []),
    ("batch_put_session_revoke", (["a"],), []),
    ("get_replica_desc", ("k",), []),
    ("batch_get_replica_desc", (["a"],), {}),
    ("get_offload_rpc_read_count", (), 0),
    ("allocate_and_mount_segment", (4096,), {"ret": -1, "segment_ids": [], "allocated_size": 0}),
    ("mount_segment", ("/dev/null", 4096), {"ret": -1, "segment_ids": []}),
    ("unmount_segment", (["x"],), -1),
    ("unmount_and_free_segment", (["x"],), -1),
    ("unmount_local_disk_segment", (), -1),
]


@pytest.mark.parametrize("method, arguments, expected", BEFORE_SETUP)
def test_a_call_before_setup_gives_its_code(method, arguments, expected):
    store = MooncakeDistributedStore()
    assert getattr(store, method)(*arguments) == expected
    assert store.close() == 0
    assert getattr(store, method)(*arguments) == expected


def test_setup_names_an_unknown_keyword():
    store = MooncakeDistributedStore()
    with pytest.raises(TypeError, match="no_such_option"):
        store.setup("h", "P2PHANDSHAKE", 0, 0, "tcp", "", "127.0.0.1:1", no_such_option=1)


def test_the_first_seven_arguments_of_setup_are_needed():
    with pytest.raises(TypeError, match="master_server_addr"):
        MooncakeDistributedStore().setup("h", "P2PHANDSHAKE", 0, 0, "tcp", "")


def test_setup_says_what_it_takes():
    assert "enable_ssd_offload" in MooncakeDistributedStore.setup.__doc__
    names = list(inspect.signature(MooncakeDistributedStore.setup).parameters)
    assert names[1:] == [
        "local_hostname", "metadata_server", "global_segment_size", "local_buffer_size",
        "protocol", "rdma_devices", "master_server_addr", "engine", "enable_ssd_offload",
        "ssd_offload_path", "tenant_id", "enable_client_http_server", "client_http_port"]


@pytest.mark.parametrize("config", [
    {},
    {"local_hostname": "h"},
    {"metadata_server": "P2PHANDSHAKE"},
    {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "global_segment_size": "50%"},
    {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "global_segment_size": 1023},
    {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "local_buffer_size": "many"},
    {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "client_http_port": "x"},
    {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "client_http_port": 70000},
])
def test_setup_by_name_refuses_what_it_cannot_read(config):
    assert MooncakeDistributedStore().setup(config) == INVALID


def test_setup_never_raises_for_the_network():
    store = MooncakeDistributedStore()
    assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", "127.0.0.1:1") < 0
    assert store.health_check() == 1
    assert store.is_exist("k") == INVALID


@pytest.mark.parametrize("arguments, keywords", [
    (("", "P2PHANDSHAKE", 0, 0, "tcp", "", "127.0.0.1:1"), {}),
    (("no such host.", "P2PHANDSHAKE", 0, 0, "tcp", "", "127.0.0.1:1"), {}),
    (("127.0.0.1", "P2PHANDSHAKE", 0, 0, "xgmi", "", "127.0.0.1:1"), {}),
    (("127.0.0.1", "P2PHANDSHAKE", 1 << 62, 0, "tcp", "", "127.0.0.1:1"), {}),
])
def test_setup_gives_a_code_for_arguments_that_cannot_work(arguments, keywords):
    assert MooncakeDistributedStore().setup(*arguments, **keywords) < 0


@pytest.mark.parametrize("method, arguments", [
    ("is_exist", (1,)),
    ("is_exist", (None,)),
    ("is_exist", ()),
    ("is_exist", ("a", "b")),
    ("batch_is_exist", ("abc",)),
    ("batch_is_exist", (b"abc",)),
    ("batch_is_exist", (7,)),
    ("batch_is_exist", ([1],)),
    ("put", ("k", "text")),
    ("put", ("k", 5)),
    ("put", ("k", [1, 2])),
    ("put", ("k",)),
    ("put", ("k", b"v", 7)),
    ("put_parts", ()),
    ("put_from", ("k", -1, 5)),
    ("put_from", ("k", 1 << 64, 5)),
    ("put_from", ("k", 1.0, 5)),
    ("put_from", ("k", "1", 5)),
    ("register_buffer", (-1, 5)),
    ("register_buffer", (0, -5)),
    ("batch_put_from", (["k"], [-1], [5])),
    ("batch_put_from", (["k"], 7, [5])),
    ("batch_put_from_multi_buffers", (["k"], [1], [5])),
    ("batch_get_into_multi_buffers", (["k"], [["x"]], [[5]])),
    ("remove_by_regex", (b"k",)),
    ("remove_by_regex", ("a\0b",)),
    ("get", (1,)),
])
def test_what_is_of_the_wrong_type_is_a_type_error(method, arguments):
    with pytest.raises(TypeError):
        getattr(MooncakeDistributedStore(), method)(*arguments)


@pytest.mark.parametrize("method, keywords", [
    ("is_exist", {"key": "k"}),
    ("get_size", {"key": "k"}),
    ("get", {"key": "k"}),
    ("get_batch", {"keys": ["k"]}),
    ("get_buffer", {"key": "k"}),
    ("batch_get_buffer", {"keys": ["k"]}),
])
def test_some_methods_take_no_keywords(method, keywords):
    with pytest.raises(TypeError):
        getattr(MooncakeDistributedStore(), method)(**keywords)


def test_keywords_have_the_known_names():
    store = MooncakeDistributedStore()
    config = ReplicateConfig()
    assert store.put(key="k", value=b"v", config=config) == INVALID
    assert store.put_parts("k", b"v", config=config) == INVALID
    assert store.put_batch(keys=["k"], values=[b"v"], config=config) == INVALID
    assert store.put_from(key="k", buffer_ptr=1, size=1, config=config) == INVALID
    assert store.batch_put_from(keys=["k"], buffer_ptrs=[1], sizes=[1], config=config) == [INVALID]
    assert store.batch_put_from_multi_buffers(
        keys=["k"], all_buffer_ptrs=[[1]], all_sizes=[[1]], config=config) == []
    assert store.get_into(key="k", buffer_ptr=1, size=1) == INVALID
    assert store.batch_get_into(keys=["k"], buffer_ptrs=[1], sizes=[1]) == [INVALID]
    assert store.batch_get_into_multi_buffers(
        keys=["k"], all_buffer_ptrs=[[1]], all_sizes=[[1]],
        prefer_alloc_in_same_node=True) == [INVALID]
    assert store.remove(key="k", force=True) == INVALID
    assert store.batch_remove(keys=["k"], force=True) == [INVALID]
    assert store.remove_all(force=True) == INVALID
    assert store.remove_by_regex(regex_pattern="k", force=True) == INVALID
    assert store.batch_replica_clear(keys=["k"], segment_name="") == []
    with pytest.raises(TypeError, match="multiple"):
        store.put("k", b"v", key="k")


@pytest.mark.parametrize("pointers, sizes", [([], []), ([1, 2], [1]), ([1], [1, 2]), ([1], [])])
def test_lists_of_unlike_length_are_minus_600_for_every_key(pointers, sizes):
    store = MooncakeDistributedStore()
    keys = ["a", "b"]
    assert store.batch_put_from(keys, pointers, sizes) == [INVALID] * 2
    assert store.batch_get_into(keys, pointers, sizes) == [INVALID] * 2
    assert store.batch_get_into_multi_buffers(keys, [[p] for p in pointers],
                                              [[s] for s in sizes]) == [INVALID] * 2
    assert store.batch_get_into_multi_buffers(keys, [[1], [1, 2]], [[1], [1]]) == [INVALID] * 2


# ---- ReplicateConfig ----------------------------------------------------------------------------

def test_a_replicate_config_has_the_known_fields_and_defaults():
    config = ReplicateConfig()
    assert hasattr(ReplicateConfig, "group_ids")
    assert (config.replica_num, config.nof_replica_num, config.dfs_replica_num) == (1, 0, 0)
    assert config.soft_pin_action == SoftPinAction.PRESERVE
    assert config.soft_pin_ttl_ms is None and config.group_ids is None
    assert config.with_hard_pin is False and config.prefer_alloc_in_same_node is False
    assert config.preferred_segments == [] and config.preferred_segment == ""
    assert config.preferred_nof_segments == [] and int(config.data_type) == 0
    config.group_ids = ["a", "b"]
    config.preferred_segments = ("x",)
    config.soft_pin_ttl_ms = 5
    assert config.group_ids == ["a", "b"] and config.preferred_segments == ["x"]
    assert "group_ids=['a', 'b']" in str(config)


@pytest.mark.parametrize("name, value", [
    ("soft_pin_ttl_ms", -1), ("soft_pin_ttl_ms", 1 << 64), ("soft_pin_ttl_ms", "5"),
    ("replica_num", "2"), ("replica_num", 1.5), ("with_hard_pin", "yes"),
    ("preferred_segment", 3), ("preferred_segments", "x"), ("group_ids", [1]),
])
def test_a_replicate_config_refuses_other_types(name, value):
    with pytest.raises(TypeError):
        setattr(ReplicateConfig(), name, value)


def test_a_replicate_config_has_no_other_fields():
    with pytest.raises(AttributeError):
        ReplicateConfig().replicas = 2


# ---- the engine ---------------------------------------------------------------------------------

@pytest.mark.parametrize("method, arguments, expected", [
    ("get_rpc_port", (), 0),
    ("transfer_sync_write", ("h:1", 1, 1, 1), -1),
    ("transfer_sync_read", ("h:1", 1, 1, 1), -1),
    ("batch_transfer_sync_write", ("h:1", [1], [1], [1]), -1),
    ("batch_transfer_sync_read", ("h:1", [1], [1], [1]), -1),
    ("transfer_sync", ("h:1", 1, 1, 1, TransferOpcode.Write), -1),
    ("batch_transfer_sync", ("h:1", [1], [1], [1], TransferOpcode.Read), -1),
    ("batch_transfer_async_write", ("h:1", [1], [1], [1]), 0),
    ("batch_transfer_async_read", ("h:1", [1], [1], [1]), 0),
    ("batch_transfer_async", ("h:1", [1], [1], [1], 1), 0),
    ("transfer_submit_write", ("h:1", 1, 1, 1), 0),
    ("get_batch_transfer_status", ([5],), -1),
    ("allocate_managed_buffer", (4096,), 0),
    ("get_first_buffer_address", ("h:1",), 0),
    ("get_notifies", (), []),
])
def test_an_engine_before_initialize_gives_its_failure_code(method, arguments, expected):
    assert getattr(TransferEngine(), method)(*arguments) == expected


@pytest.mark.parametrize("method, arguments", [
    ("register_memory", (1, 1)), ("unregister_memory", (1,)),
    ("batch_register_memory", ([1], [1])), ("batch_unregister_memory", ([1],)),
    ("transfer_check_status", (5,)), ("send_probe", ("h:1",)),
])
def test_an_engine_before_initialize_refuses(method, arguments):
    assert getattr(TransferEngine(), method)(*arguments) != 0


def test_numbers_and_names_of_opcodes():
    from mooncake import engine
    assert (engine.Read, engine.Write) == (0, 1)
    assert TransferEngine.TransferOpcode.Write is TransferOpcode.Write
    notify = TransferNotify("n", "m")
    assert (notify.name, notify.msg) == ("n", "m")
    assert (TransferNotify().name, TransferNotify().msg) == ("", "")


def test_initialize_gives_minus_1_for_what_cannot_work():
    assert TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "xgmi", "") == -1
    with pytest.raises(TypeError):
        TransferEngine().initialize(local_hostname="h", metadata_server="", protocol="",
                                    device_name="")
