# SPDX-License-Identifier: Apache-2.0
"""The store that engines share their blocks through."""
import atexit as _atexit
import enum as _enum
import inspect as _inspect
import logging as _logging
import mmap as _mmap
import operator as _operator
import os as _os
import weakref as _weakref

from mooncake import _http, _parallel, _tensors
from mooncake._engram import EngramStore, EngramStoreConfig
from mooncake._tensors import ParallelAxis, ReadTarget, TensorParallelism
from mooncake.mooncake_config import parse_flag as _parse_flag
from mooncake.mooncake_config import parse_size as _parse_size
from yuebing import _native
from yuebing._native import BufferHandle, get_alloc_func_addr, get_free_func_addr

_log = _logging.getLogger("mooncake.store")

_INVALID_PARAMS = _native.CODES["INVALID_PARAMS"]
_SEGMENT_BYTES_MIN = 1024


# ---- enums --------------------------------------------------------------------------------------

class _Named(_enum.IntEnum):
    """A number that is written by its name, in every version of Python."""

    __str__ = _enum.Enum.__str__

    def __format__(self, spec):
        return format(str(self), spec)


class ObjectDataType(_Named):
    UNKNOWN = 0
    KVCACHE = 1
    TENSOR = 2
    WEIGHT = 3
    SAMPLE = 4
    ACTIVATION = 5
    GRADIENT = 6
    OPTIMIZER_STATE = 7
    METADATA = 8
    GENERAL = 9


class SoftPinAction(_Named):
    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class ReplicaStatus(_Named):
    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5


class TaskType(_Named):
    REPLICA_COPY = 0
    REPLICA_MOVE = 1


class TaskStatus(_Named):
    PENDING = 0
    PROCESSING = 1
    SUCCESS = 2
    FAILED = 3


# Names at the module's scope; of those that occur twice the last enum's count.
for _kind in (ObjectDataType, ReplicaStatus, TaskType, TaskStatus):
    globals().update(_kind.__members__)


# ---- ReplicateConfig ----------------------------------------------------------------------------

def _text(value):
    if not isinstance(value, str):
        raise TypeError(f"expected a str, not {value!r}")
    return value


def _texts(value):
    if isinstance(value, (str, bytes)):
        raise TypeError(f"expected a list of str, not {value!r}")
    return [_text(element) for element in value]


def _texts_or_none(value):
    return None if value is None else _texts(value)


def _ttl(value):
    if value is None:
        return None
    number = _operator.index(value)
    if not 0 <= number < 1 << 64:
        raise TypeError(f"soft_pin_ttl_ms is None or a number of 0 .. 2**64 - 1, not {value!r}")
    return number


def _truth(value):
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise TypeError(f"expected a bool, not {value!r}")


class ReplicateConfig:
    """How a value is kept: how many replicas, where, and how firmly."""

    _fields = {
        "replica_num": (_operator.index, 1),
        "nof_replica_num": (_operator.index, 0),
        "dfs_replica_num": (_operator.index, 0),
        "soft_pin_action": (SoftPinAction, SoftPinAction.PRESERVE),
        "soft_pin_ttl_ms": (_ttl, None),
        "with_hard_pin": (_truth, False),
        "preferred_segments": (_texts, ()),
        "preferred_segment": (_text, ""),
        "preferred_nof_segments": (_texts, ()),
        "prefer_alloc_in_same_node": (_truth, False),
        "data_type": (ObjectDataType, ObjectDataType.UNKNOWN),
        "group_ids": (_texts_or_none, None),
    }
    __slots__ = tuple(_fields)

    def __init__(self):
        for name, (_, value) in self._fields.items():
            setattr(self, name, value)

    def __setattr__(self, name, value):
        field = self._fields.get(name)
        if field is None:
            raise AttributeError(f"ReplicateConfig has no attribute {name!r}")
        super().__setattr__(name, field[0](value))

    def __str__(self):
        return "ReplicateConfig(" + ", ".join(
            f"{name}={getattr(self, name)}" for name in self._fields) + ")"

    __repr__ = __str__


# ---- descriptors --------------------------------------------------------------------------------

class Descriptor:
    """Where the bytes of a replica lie."""

    __slots__ = ("size", "buffer_address", "transport_endpoint")

    def __init__(self, size=0, buffer_address=0, transport_endpoint=""):
        self.size = size
        self.buffer_address = buffer_address
        self.transport_endpoint = transport_endpoint

    def __repr__(self):
        return f"Descriptor(size={self.size}, buffer_address={self.buffer_address}, " \
            f"transport_endpoint={self.transport_endpoint!r})"


class MemoryDescriptor:
    """Where a replica in memory lies: its `buffer_descriptor`."""

    __slots__ = ("buffer_descriptor",)

    def __init__(self, buffer_descriptor):
        self.buffer_descriptor = buffer_descriptor


class DiskDescriptor:
    """Where a replica below memory lies, and how large the value is."""

    __slots__ = ("file_path", "object_size")

    def __init__(self, file_path, object_size):
        self.file_path = file_path
        self.object_size = object_size


class ReplicaDescriptor:
    """One replica of a value."""

    __slots__ = ("_segment", "_endpoint", "_size", "_memory", "_status")

    def __init__(self, segment, endpoint, size, memory, complete):
        self._segment = segment
        self._endpoint = endpoint
        self._size = size
        self._memory = memory
        self._status = ReplicaStatus.COMPLETE if complete else ReplicaStatus.PROCESSING

    @property
    def status(self):
        return self._status

    def is_memory_replica(self):
        """Whether it lies in memory."""
        return self._memory

    def is_disk_replica(self):
        """Never: a disk that all share is no tier of ours."""
        return False

    def is_local_disk_replica(self):
        """Whether it lies below the memory of its node."""
        return not self._memory

    def get_memory_descriptor(self):
        """Where in memory; RuntimeError if it is not there."""
        if not self._memory:
            raise RuntimeError("this replica is not in memory")
        return MemoryDescriptor(Descriptor(self._size, 0, self._endpoint))

    def get_disk_descriptor(self):
        """RuntimeError: no replica of ours is in a file that is shared."""
        raise RuntimeError("this replica is not in a file that is shared")

    def __repr__(self):
        where = "memory" if self._memory else "disk"
        return f"ReplicaDescriptor({self._segment!r}, {where}, {self._size} bytes, " \
            f"{self._status.name})"


class QueryTaskResponse:
    """How a copy or a move stands."""

    __slots__ = ("id", "type", "status", "created_at_ms_epoch", "last_updated_at_ms_epoch",
                 "assigned_client", "message")

    def __init__(self, task_id, told):
        _, move, state, created, updated, message = told
        self.id = task_id
        self.type = TaskType.REPLICA_MOVE if move else TaskType.REPLICA_COPY
        self.status = TaskStatus(state)
        self.created_at_ms_epoch = created
        self.last_updated_at_ms_epoch = updated
        self.assigned_client = (0, 0)
        self.message = message

    def __repr__(self):
        return f"QueryTaskResponse(id={self.id}, type={self.type.name}, " \
            f"status={self.status.name}, message={self.message!r})"


# ---- memory -------------------------------------------------------------------------------------

class MooncakeHostMemAllocator:
    """Memory that this process shares with the node of a `mooncake_client` on this host."""

    def alloc(self, size, /):
        """An address, or 0."""
        return _native.host_alloc(size)

    def free(self, ptr, /):
        """0, or a code."""
        return _native.host_free(ptr)


class MooncakeDistributedNoFRegister:
    """Would tell a master of a namespace of NVMe over fabrics, which is no tier of this store: disks
    belong to nodes. It answers what the known package does when it is built without: -1."""

    def real_register(self, nqn, nsid, traddr, trsvcid, base, size, master_server_addr, /):
        """-1, and a log line."""
        return self._refuse()

    def real_unregister_by_endpoint(self, nqn, nsid, traddr, trsvcid, master_server_addr, /):
        """-1, and a log line."""
        return self._refuse()

    @staticmethod
    def _refuse():
        _log.error("NVMe over fabrics is no tier of this store; give a node a disk instead "
                   "(yuebing serve --ssd)")
        return -1


def bind_to_numa_node(node):
    """Run this thread on the processors of a NUMA node; a warning if that is not possible."""
    try:
        number = _operator.index(node)
        with open(f"/sys/devices/system/node/node{number}/cpulist", encoding="ascii") as file:
            spans = [span.split("-") for span in file.read().strip().split(",") if span]
        _os.sched_setaffinity(0, {
            cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)})
    except (OSError, ValueError) as error:
        _log.warning("cannot bind to NUMA node %s: %s", node, error)


# ---- the store ----------------------------------------------------------------------------------

_DEFAULTS = {
    "global_segment_size": "16MB",
    "local_buffer_size": "16MB",
    "protocol": "tcp",
    "rdma_devices": "",
    "master_server_addr": "127.0.0.1:50051",
    "ssd_offload_path": "",
    "tenant_id": "default",
}
_HTTP_ARGUMENTS = ("enable_client_http_server", "client_http_port")
_HTTP_FIRST = 11  # Where they are among setup's arguments.
# How LMCache spells them; the right name wins.
_OTHER_NAMES = {"master_server_address": "master_server_addr", "device_name": "rdma_devices"}


class MooncakeDistributedStore(_parallel.ParallelMethods, _tensors.TensorMethods, _native.Store):
    """A client of the store, which may also give it memory. Codes are negative numbers."""

    def __new__(cls, *arguments, **keywords):
        self = super().__new__(cls)
        self._http = None
        _living.add(self)
        return self

    def setup(self, *arguments, **keywords):
        config = keywords.get("config", arguments[0] if arguments else None)
        if isinstance(config, dict) and len(arguments) + len(keywords) == 1:
            return self._setup_dict(config)
        code = super().setup(*arguments, **keywords)
        if code == 0:
            named = dict(zip(_HTTP_ARGUMENTS, arguments[_HTTP_FIRST:]), **keywords)
            self._serve(named.get("enable_client_http_server", False),
                        named.get("client_http_port", 9300))
        return code

    def _serve(self, wanted, port):
        if wanted:
            self._http = _http.start(_weakref.proxy(self), _operator.index(port))
            if self._http is not None:
                _weakref.finalize(self, self._http.close)

    def close(self):
        """Leave the store; 0. May be called again."""
        server, self._http = self._http, None
        if server is not None:
            server.close()
        return super().close()

    setup.__doc__ = _native.Store.setup.__doc__
    setup.__signature__ = _inspect.Signature([
        _inspect.Parameter(name, _inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        for name, default in {
            "self": _inspect.Parameter.empty,
            "local_hostname": _inspect.Parameter.empty,
            "metadata_server": _inspect.Parameter.empty,
            "global_segment_size": _inspect.Parameter.empty,
            "local_buffer_size": _inspect.Parameter.empty,
            "protocol": _inspect.Parameter.empty,
            "rdma_devices": _inspect.Parameter.empty,
            "master_server_addr": _inspect.Parameter.empty,
            "engine": None,
            "enable_ssd_offload": False,
            "ssd_offload_path": "",
            "tenant_id": "default",
            "enable_client_http_server": False,
            "client_http_port": 9300,
        }.items()])

    def _setup_dict(self, config):
        """The same by name. What cannot be read is logged, and -600."""
        config = {str(key): value for key, value in config.items()}
        for other, name in _OTHER_NAMES.items():
            if other in config:
                config.setdefault(name, config[other])
        try:
            for key in ("local_hostname", "metadata_server"):
                if key not in config:
                    raise ValueError(f"setup: {key} is missing")
            texts = {key: str(config.get(key, default)) for key, default in _DEFAULTS.items()}
            sizes = {}
            for key in ("global_segment_size", "local_buffer_size"):
                value = config.get(key, _DEFAULTS[key])
                sizes[key] = _parse_size(value if isinstance(value, int) else str(value))
                if sizes[key] < 0 or 0 < sizes[key] < _SEGMENT_BYTES_MIN:
                    raise ValueError(f"setup: {key} is 0 or at least {_SEGMENT_BYTES_MIN} bytes")
            port = int(str(config.get("client_http_port", 9300)))
            if not 0 <= port <= 65535:
                raise ValueError(f"setup: client_http_port is {port}")
        except ValueError as error:
            _log.error("%s", error)
            return _INVALID_PARAMS
        code = super().setup(
            str(config["local_hostname"]), str(config["metadata_server"]),
            sizes["global_segment_size"], sizes["local_buffer_size"], texts["protocol"],
            texts["rdma_devices"], texts["master_server_addr"],
            enable_ssd_offload=_flag(config, "enable_ssd_offload"),
            ssd_offload_path=texts["ssd_offload_path"], tenant_id=texts["tenant_id"],
            enable_client_http_server=_flag(config, "enable_client_http_server"),
            client_http_port=port)
        if code == 0:
            self._serve(_flag(config, "enable_client_http_server"), port)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- replicas and tasks --

    def get_replica_desc(self, key):
        """The replicas of a value; [] if it cannot be had."""
        return [ReplicaDescriptor(*told) for _, *told in self._replicas([key])]

    def batch_get_replica_desc(self, keys):
        """The replicas by key; a key that has none is left out."""
        keys = list(keys)
        found = {}
        for index, *told in self._replicas(keys):
            found.setdefault(keys[index], []).append(ReplicaDescriptor(*told))
        return found

    def create_copy_task(self, key, targets):
        """(id, 0), or ((0, 0), code)."""
        high, low, code = self._task(key, None, targets)
        return ((high, low), 0) if code == 0 else ((0, 0), code)

    def create_move_task(self, key, source, target):
        """(id, 0), or ((0, 0), code)."""
        high, low, code = self._task(key, source, [target])
        return ((high, low), 0) if code == 0 else ((0, 0), code)

    def query_task(self, task_id):
        """(QueryTaskResponse, 0), or (None, code)."""
        high, low = task_id
        told = self._task_query(high, low)
        return (QueryTaskResponse((high, low), told), 0) if told[0] == 0 else (None, told[0])

    # -- segments --

    def allocate_and_mount_segment(self, size, protocol="tcp", location=""):
        """Give memory to the store: {"ret", "segment_ids", "allocated_size"}."""
        if not self._is_ready():
            return {"ret": -1, "segment_ids": [], "allocated_size": 0}
        size = _operator.index(size)
        code, name = self._mount(size)
        return {"ret": code, "segment_ids": [name] if code == 0 else [],
                "allocated_size": size if code == 0 else 0}

    def mount_segment(self, path, size, offset=0, protocol="tcp", location=""):
        """Give as much memory to the store as the range of the file has."""
        if not self._is_ready():
            return {"ret": -1, "segment_ids": []}
        size, offset = _operator.index(size), _operator.index(offset)
        try:
            descriptor = _os.open(path, _os.O_RDWR | _os.O_CLOEXEC)
            try:
                end = _os.lseek(descriptor, 0, _os.SEEK_END)
            finally:
                _os.close(descriptor)
        except OSError as error:
            _log.error("mount_segment: %s", error)
            return {"ret": _native.CODES["FILE_OPEN_FAIL"], "segment_ids": []}
        if size <= 0 or offset < 0 or offset % _mmap.PAGESIZE or offset + size > end:
            _log.error("mount_segment: %s has no range of %d bytes at %d, a multiple of %d", path,
                       size, offset, _mmap.PAGESIZE)
            return {"ret": _INVALID_PARAMS, "segment_ids": []}
        code, name = self._mount(size)
        return {"ret": code, "segment_ids": [name] if code == 0 else []}

    def unmount_segment(self, segment_ids, grace_period_seconds=0):
        """Take memory back; what lies there is moved as far as time and others' room allow."""
        if not self._is_ready():
            return -1
        first = 0
        for name in segment_ids:
            code = self._unmount(name, _operator.index(grace_period_seconds) * 1000)
            first = first or code
        return first

    def unmount_and_free_segment(self, segment_ids, grace_period_seconds=0):
        """As unmount_segment."""
        return self.unmount_segment(segment_ids, grace_period_seconds)

    def unmount_local_disk_segment(self, grace_period_seconds=0):
        """-1 before setup, otherwise -1012: disks are a node's, and it keeps them."""
        return _native.CODES["NOT_SUPPORTED"] if self._is_ready() else -1

    def alloc_from_mem_pool(self, size, /):
        """Memory that the node of a `mooncake_client` on this host can reach: an address, or 0."""
        return _native.host_alloc(size)

    def get_offload_rpc_read_count(self):
        """0: values on a disk are read by their node, without a call of their own."""
        return 0

    def _get_pyclient_capsule(self):
        return None


def _flag(config, key):
    try:
        return _parse_flag(config.get(key, False))
    except ValueError as error:
        _log.warning("setup: %s: %s; taken as false", key, error)
        return False


_living = _weakref.WeakSet()


@_atexit.register
def _end():
    # A store in a module's variable is not always destroyed at the interpreter's end, and its
    # segment would stay until its lease is over.
    for store in list(_living):
        store.close()


def _get_pyclient_from_wrapper(wrapper):
    return None


_serialize_tensor = _tensors.serialize
_deserialize_tensor = _tensors.deserialize
_tensor_metadata_size = _tensors.metadata_size

from mooncake.buffer_pool import (  # noqa: E402
    BufferLease,
    BufferLeaseView,
    BufferPool,
    RegisteredBufferLease,
    RegisteredBufferLeaseView,
    RegisteredBufferPool,
)

__all__ = [
    "BufferHandle",
    "BufferLease",
    "BufferLeaseView",
    "BufferPool",
    "Descriptor",
    "DiskDescriptor",
    "EngramStore",
    "EngramStoreConfig",
    "MemoryDescriptor",
    "MooncakeDistributedNoFRegister",
    "MooncakeDistributedStore",
    "MooncakeHostMemAllocator",
    "ObjectDataType",
    "ParallelAxis",
    "QueryTaskResponse",
    "ReadTarget",
    "RegisteredBufferLease",
    "RegisteredBufferLeaseView",
    "RegisteredBufferPool",
    "ReplicaDescriptor",
    "ReplicaStatus",
    "ReplicateConfig",
    "SoftPinAction",
    "TaskStatus",
    "TaskType",
    "TensorParallelism",
    "bind_to_numa_node",
    "get_alloc_func_addr",
    "get_free_func_addr",
]
