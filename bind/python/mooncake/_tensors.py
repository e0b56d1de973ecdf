# SPDX-License-Identifier: Apache-2.0
"""Tensors in the store: their metadata, and the methods that put and get them.

An object is TensorMetadata followed by the tensor's bytes in order. torch is imported when a method
needs it. The parts of a tensor that is split are objects of their own; their keys tell which.
"""
import ctypes
import json
import logging
import operator
import struct

from yuebing import _native

log = logging.getLogger("mooncake.store")

_INVALID = _native.CODES["INVALID_PARAMS"]
_NOT_SUPPORTED = _native.CODES["NOT_SUPPORTED"]
_FILE_NOT_FOUND = _native.CODES["FILE_NOT_FOUND"]

_MAGIC = 0x4D4F4F4E
_VERSION = 1
DIMS = 8
_AXES = 4
_HEADER = struct.Struct("<IHHiiIIQQ")
_LAYOUT = struct.Struct("<8q8qII")
_AXIS = struct.Struct("<6iq")
_BYTES = _HEADER.size + _LAYOUT.size + _AXES * _AXIS.size
_LAYOUT_WHOLE = 0
_LAYOUT_SHARD = 1

# By dtype code: torch's name, bytes of an element, the name in a safetensors file.
_DTYPES = [
    ("float32", 4, "F32"), ("float64", 8, "F64"), ("int8", 1, "I8"), ("uint8", 1, "U8"),
    ("int16", 2, "I16"), ("uint16", 2, "U16"), ("int32", 4, "I32"), ("uint32", 4, "U32"),
    ("int64", 8, "I64"), ("uint64", 8, "U64"), ("bool", 1, "BOOL"), ("float16", 2, "F16"),
    ("bfloat16", 2, "BF16"), ("float8_e4m3fn", 1, "F8_E4M3"), ("float8_e5m2", 1, "F8_E5M2"),
]
KINDS = ("dp", "tp", "ep", "pp")


def torch_module():
    import torch
    return torch


# ---- how a tensor is split ----------------------------------------------------------------------

class ParallelAxis:
    """One way in which a tensor is split, and which part this is."""

    def __init__(self, kind="tp", rank=0, size=1, split_dim=None, expert_id=None, stage_id=None):
        self.kind = kind
        self.rank = rank
        self.size = size
        self.split_dim = split_dim
        self.expert_id = expert_id
        self.stage_id = stage_id

    def __repr__(self):
        return f"ParallelAxis({self.kind!r}, rank={self.rank}, size={self.size}, " \
            f"split_dim={self.split_dim})"


class TensorParallelism:
    """All ways in which a tensor is split."""

    def __init__(self, axes=()):
        self.axes = list(axes)


class ReadTarget:
    """What a get is to give: "as_stored", "shard" or "full"."""

    def __init__(self):
        self._mode = "as_stored"
        self.parallelism = None

    @property
    def mode(self):
        return self._mode

    @mode.setter
    def mode(self, mode):
        if mode not in ("as_stored", "shard", "full"):
            raise RuntimeError(f"mode is as_stored, shard or full, not {mode!r}")
        self._mode = mode


# ---- metadata -----------------------------------------------------------------------------------

def dtype_code(dtype):
    name = str(dtype).removeprefix("torch.")
    for code, (known, _, _) in enumerate(_DTYPES):
        if known == name:
            return code
    raise ValueError(f"tensors of {dtype} cannot be stored")


def metadata_size():
    return _BYTES


def _pack(dtype, shape, data_bytes, axes=()):
    if len(shape) > DIMS:
        raise ValueError(f"a tensor has at most {DIMS} dimensions")
    dims = list(shape) + [-1] * (DIMS - len(shape))
    whole = list(dims)
    for axis in axes:
        if axis.split_dim is not None and 0 <= axis.split_dim < len(shape):
            whole[axis.split_dim] *= axis.size
    packed = _HEADER.pack(_MAGIC, _VERSION, _BYTES, dtype, len(shape),
                          _LAYOUT_SHARD if axes else _LAYOUT_WHOLE, 0, _BYTES, data_bytes)
    packed += _LAYOUT.pack(*whole, *dims, len(axes), 0)
    for i, axis in enumerate(axes):
        split = -1 if axis.split_dim is None else axis.split_dim
        extra = axis.expert_id if axis.expert_id is not None else axis.stage_id
        if axis.kind == "tp" and 0 <= split < len(shape):
            extra = shape[split]
        packed += _AXIS.pack(KINDS.index(axis.kind), i, axis.rank, axis.size, split, extra or 0, 0)
    return packed.ljust(_BYTES, b"\0")


class Head:
    """What the metadata of a tensor says; ValueError for what is no tensor."""

    def __init__(self, head):
        if len(head) < _BYTES:
            raise ValueError("shorter than the metadata of a tensor")
        magic, version, _, self.dtype, ndim, _, _, self.offset, self.data_bytes = \
            _HEADER.unpack_from(head)
        if magic != _MAGIC or version != _VERSION:
            raise ValueError("not a tensor")
        if not 0 <= self.dtype < len(_DTYPES) or not 0 <= ndim <= DIMS:
            raise ValueError("a tensor of an unknown kind")
        *dims, axes, _ = _LAYOUT.unpack_from(head, _HEADER.size)
        self.whole = dims[:ndim]
        self.shape = dims[DIMS:DIMS + ndim]
        self.axes = []
        for i in range(min(axes, _AXES)):
            kind, _, rank, size, split, _, _ = _AXIS.unpack_from(
                head, _HEADER.size + _LAYOUT.size + i * _AXIS.size)
            if not 0 <= kind < len(KINDS):
                raise ValueError("a tensor with an unknown axis")
            self.axes.append(ParallelAxis(KINDS[kind], rank, size, None if split < 0 else split))


def _unpack(head, total):
    """(dtype code, shape, offset of the data, its bytes); ValueError for what is no tensor."""
    told = Head(head)
    expected = _DTYPES[told.dtype][1]
    for length in told.shape:
        if length < 0:
            raise ValueError("a tensor with a negative dimension")
        expected *= length
    if told.offset < _BYTES or expected != told.data_bytes or \
            told.offset + told.data_bytes > total:
        raise ValueError("the metadata of a tensor does not fit its bytes")
    return told.dtype, told.shape, told.offset, told.data_bytes


def _host_tensor(tensor):
    """The tensor in order in host memory."""
    if not isinstance(tensor, torch_module().Tensor):
        raise TypeError(f"expected a torch.Tensor, not {tensor!r}")
    return tensor.detach().cpu().contiguous()


def serialize(tensor, /):
    """(metadata, address, bytes, owner of the memory)."""
    tensor = _host_tensor(tensor)
    size = tensor.numel() * tensor.element_size()
    return _pack(dtype_code(tensor.dtype), tuple(tensor.shape), size), tensor.data_ptr(), size, \
        tensor


def tensor_of(buffer):
    """A tensor on a writable buffer, which it keeps alive."""
    torch = torch_module()
    view = memoryview(buffer).cast("B")
    dtype, shape, offset, size = _unpack(view[:_BYTES], len(view))
    kind = getattr(torch, _DTYPES[dtype][0])
    if size == 0:
        return torch.empty(shape, dtype=kind)
    raw = torch.frombuffer(view, dtype=torch.uint8, count=size, offset=offset)
    if offset % _DTYPES[dtype][1]:
        raw = raw.clone()
    return raw.view(kind).reshape(shape)


def deserialize(data, /):
    return tensor_of(bytearray(data))


def parts_of(tensor, axes=()):
    """The two pieces of an object, and who owns the second's memory."""
    tensor = _host_tensor(tensor)
    size = tensor.numel() * tensor.element_size()
    head = _pack(dtype_code(tensor.dtype), tuple(tensor.shape), size, axes)
    data = (ctypes.c_ubyte * size).from_address(tensor.data_ptr()) if size else b""
    return head, data, tensor


# ---- the methods --------------------------------------------------------------------------------

class TensorMethods:
    """What a store does with tensors. A failed get is None, a failed put a code."""

    # -- within --

    def _tensor_put(self, key, tensor, config=None, axes=(), upsert=False):
        if not self._is_ready():
            return _INVALID
        try:
            head, data, owner = parts_of(tensor, axes)
        except ValueError:
            return _INVALID
        put = self.upsert_parts if upsert else self.put_parts
        if config is None:
            code = put(key, head, data)
        else:
            code = put(key, head, data, config=config)
        del owner
        return code

    def _tensor_get(self, key):
        size = self.get_size(key)
        if size < _BYTES:
            return None
        memory = bytearray(size)
        address = _native.address_of(memory)
        if self.get_into(key, address, size) != size:
            return None
        try:
            return tensor_of(memory)
        except ValueError:
            return None

    def _tensor_into(self, key, address, size):
        got = self.get_into(key, address, size)
        if got < _BYTES:
            return None
        try:
            return tensor_of(_native.view(address, got))
        except ValueError:
            return None

    def _tensor_from(self, key, address, size, config=None, upsert=False):
        try:
            if size < _BYTES or address == 0:
                raise ValueError("too small")
            _unpack(_native.view(address, _BYTES), size)
        except ValueError:
            return _INVALID
        put = self.upsert_from if upsert else self.put_from
        return put(key, address, size) if config is None else put(key, address, size, config)

    def _tensor_split(self, key, tensor, size, split_dim, config=None, upsert=False):
        """Put all shards of a tensor; the first code."""
        if size < 1 or not 0 <= split_dim < max(1, tensor.dim()):
            return _INVALID
        if size == 1:
            return self._tensor_put(key, tensor, config, upsert=upsert)
        if tensor.dim() == 0 or tensor.shape[split_dim] < size:
            return _INVALID
        first = 0
        for rank, part in enumerate(tensor.tensor_split(size, split_dim)):
            axis = ParallelAxis("tp", rank, size, split_dim)
            code = self._tensor_put(self._tp_key(key, rank, size), part, config, [axis], upsert)
            first = first or code
        return first

    @staticmethod
    def _tp_key(key, rank, size):
        return key if size <= 1 else f"{key}_tp_{rank}"

    def _same_length(self, keys, *lists):
        return all(len(other) == len(keys) for other in lists)

    # -- get --

    def get_tensor(self, key):
        """The tensor at a key; None if there is none."""
        return self._tensor_get(key)

    def batch_get_tensor(self, keys):
        """get_tensor() of each, in a list."""
        return [self._tensor_get(key) for key in keys]

    def get_tensor_with_tp(self, key, tp_rank=0, tp_size=1, split_dim=0):
        """A rank's part of a tensor that was split; None if there is none."""
        return self._tensor_get(self._tp_key(key, tp_rank, tp_size))

    def batch_get_tensor_with_tp(self, base_keys, tp_rank=0, tp_size=1):
        """get_tensor_with_tp() of each, in a list."""
        return [self._tensor_get(self._tp_key(key, tp_rank, tp_size)) for key in base_keys]

    def get_tensor_into(self, key, buffer_ptr, size):
        """The tensor at a key, in the caller's memory; None if there is none or no room."""
        return self._tensor_into(key, operator.index(buffer_ptr), operator.index(size))

    def batch_get_tensor_into(self, keys, buffer_ptrs, sizes):
        """get_tensor_into() of each, in a list."""
        if not self._is_ready() or not self._same_length(keys, buffer_ptrs, sizes):
            return [_INVALID] * len(keys)
        return [self.get_tensor_into(*row) for row in zip(keys, buffer_ptrs, sizes)]

    def get_tensor_with_tp_into(self, key, buffer_ptr, size, tp_rank=0, tp_size=1, split_dim=0):
        """A rank's part, in the caller's memory; None if there is none or no room."""
        return self.get_tensor_into(self._tp_key(key, tp_rank, tp_size), buffer_ptr, size)

    def batch_get_tensor_with_tp_into(self, base_keys, buffer_ptrs, sizes, tp_rank=0, tp_size=1):
        """get_tensor_with_tp_into() of each, in a list."""
        return self.batch_get_tensor_into([self._tp_key(key, tp_rank, tp_size)
                                           for key in base_keys], buffer_ptrs, sizes)

    def get_tensor_into_cuda(self, key, tensor):
        """-1012: not supported."""
        return _NOT_SUPPORTED

    def batch_get_tensor_into_cuda(self, keys, tensors_list):
        """get_tensor_into_cuda() of each, in a list."""
        return [_NOT_SUPPORTED] * len(keys)

    # -- put --

    def put_tensor(self, key, tensor):
        """Put a tensor; 0 or a code. What is there stays."""
        return self._tensor_put(key, tensor)

    def put_tensor_with_tp(self, key, tensor, tp_rank=0, tp_size=1, split_dim=0):
        """Put a tensor in as many parts as there are ranks; 0 or the first code."""
        return self._tensor_split(key, tensor, tp_size, split_dim)

    def batch_put_tensor(self, keys, tensors_list):
        """put_tensor() of each, in a list."""
        return self.batch_pub_tensor(keys, tensors_list)

    def batch_put_tensor_with_tp(self, base_keys, tensors_list, tp_rank=0, tp_size=1,
                                 split_dim=0):
        """put_tensor_with_tp() of each, in a list."""
        return self.batch_pub_tensor_with_tp(base_keys, tensors_list, None, tp_rank, tp_size,
                                             split_dim)

    def put_tensor_from(self, key, buffer_ptr, size):
        """Put a tensor with its head from the caller's memory; 0 or a code."""
        return self._tensor_from(key, operator.index(buffer_ptr), operator.index(size))

    def put_tensor_with_tp_from(self, key, buffer_ptr, size, tp_rank=0, tp_size=1, split_dim=0):
        """Put a rank's part with its head from the caller's memory; 0 or a code."""
        return self.put_tensor_from(self._tp_key(key, tp_rank, tp_size), buffer_ptr, size)

    def batch_put_tensor_from(self, keys, buffer_ptrs, sizes):
        """put_tensor_from() of each, in a list."""
        if not self._same_length(keys, buffer_ptrs, sizes):
            return [_INVALID] * len(keys)
        return [self.put_tensor_from(*row) for row in zip(keys, buffer_ptrs, sizes)]

    def batch_put_tensor_with_tp_from(self, base_keys, buffer_ptrs, sizes, tp_rank=0, tp_size=1,
                                      split_dim=0):
        """put_tensor_with_tp_from() of each, in a list."""
        return self.batch_put_tensor_from([self._tp_key(key, tp_rank, tp_size)
                                           for key in base_keys], buffer_ptrs, sizes)

    def pub_tensor(self, key, tensor, config=None):
        """put_tensor() with a ReplicateConfig."""
        return self._tensor_put(key, tensor, config)

    def pub_tensor_with_tp(self, key, tensor, config=None, tp_rank=0, tp_size=1, split_dim=0):
        """put_tensor_with_tp() with a ReplicateConfig."""
        return self._tensor_split(key, tensor, tp_size, split_dim, config)

    def batch_pub_tensor(self, keys, tensors_list, config=None):
        """pub_tensor() of each, in a list."""
        if not self._same_length(keys, tensors_list):
            return [_INVALID] * len(keys)
        return [self._tensor_put(key, tensor, config)
                for key, tensor in zip(keys, tensors_list)]

    def batch_pub_tensor_with_tp(self, base_keys, tensors_list, config=None, tp_rank=0, tp_size=1,
                                 split_dim=0):
        """pub_tensor_with_tp() of each, in a list."""
        if not self._same_length(base_keys, tensors_list):
            return [_INVALID] * len(base_keys)
        return [self._tensor_split(key, tensor, tp_size, split_dim, config)
                for key, tensor in zip(base_keys, tensors_list)]

    # -- upsert --

    def upsert_tensor(self, key, tensor):
        """Put a tensor, or replace what is there; 0 or a code."""
        return self._tensor_put(key, tensor, upsert=True)

    def upsert_tensor_from(self, key, buffer_ptr, size):
        """put_tensor_from() that replaces what is there."""
        return self._tensor_from(key, operator.index(buffer_ptr), operator.index(size),
                                 upsert=True)

    def upsert_pub_tensor(self, key, tensor, config=None):
        """upsert_tensor() with a ReplicateConfig."""
        return self._tensor_put(key, tensor, config, upsert=True)

    def batch_upsert_tensor(self, keys, tensors_list):
        """upsert_tensor() of each, in a list."""
        return self.batch_upsert_pub_tensor(keys, tensors_list)

    def batch_upsert_tensor_from(self, keys, buffer_ptrs, sizes):
        """upsert_tensor_from() of each, in a list."""
        if not self._same_length(keys, buffer_ptrs, sizes):
            return [_INVALID] * len(keys)
        return [self.upsert_tensor_from(*row) for row in zip(keys, buffer_ptrs, sizes)]

    def batch_upsert_pub_tensor(self, keys, tensors_list, config=None):
        """upsert_pub_tensor() of each, in a list."""
        if not self._same_length(keys, tensors_list):
            return [_INVALID] * len(keys)
        return [self._tensor_put(key, tensor, config, upsert=True)
                for key, tensor in zip(keys, tensors_list)]

    # -- safetensors --

    def save_tensor_to_safetensor(self, key, file_name=None):
        """0, -1100 if the key is not there, or -600."""
        size = self.get_size(key)
        if size < 0:
            return _FILE_NOT_FOUND
        data = self.get(key)
        try:
            dtype, shape, offset, length = _unpack(data[:_BYTES], len(data))
        except ValueError:
            return _INVALID
        head = json.dumps({key: {"dtype": _DTYPES[dtype][2], "shape": list(shape),
                                 "data_offsets": [0, length]}}).encode()
        head += b" " * (-len(head) % 8)
        try:
            with open(file_name or f"{key}.safetensors", "wb") as file:
                file.write(struct.pack("<Q", len(head)) + head + data[offset:offset + length])
        except OSError:
            return _INVALID
        return 0

    def load_tensor_from_safetensor(self, key=None, *, file_name):
        """The tensor of that name in the file, or its first; it is put under the key, too."""
        try:
            with open(file_name, "rb") as file:
                length = struct.unpack("<Q", file.read(8))[0]
                table = json.loads(file.read(length))
                entries = {name: row for name, row in table.items() if name != "__metadata__"}
                name = key if key in entries else next(iter(entries))
                row = entries[name]
                start, end = row["data_offsets"]
                file.seek(8 + length + start)
                data = file.read(end - start)
            code = [known for _, _, known in _DTYPES].index(row["dtype"])
            tensor = tensor_of(bytearray(_pack(code, row["shape"], len(data)) + data))
        except (OSError, ValueError, KeyError, StopIteration, struct.error):
            return None
        self._tensor_put(key or name, tensor)
        return tensor
