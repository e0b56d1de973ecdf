# SPDX-License-Identifier: Apache-2.0
"""Tensors by the way they are split: put by one layout, got by the same or by another.

A rank puts its own part, under a key that tells the part; beside it lies a manifest that tells the
whole's shape. Whoever reads names a layout: the part is given as it was put if it is there, and put
together from what others put otherwise, reading no more of them than it needs.
"""
import ctypes
import operator
import struct

from mooncake import _tensors
from mooncake._tensors import ParallelAxis
from yuebing import _native

_INVALID = _native.CODES["INVALID_PARAMS"]
_MANIFEST = struct.Struct("<IHHiiiiii8q")
_MANIFEST_MAGIC = 0x574D414E


# ---- layouts ------------------------------------------------------------------------------------

def _check_axis(axis):
    if axis.kind not in _tensors.KINDS or axis.size < 1 or not 0 <= axis.rank < axis.size:
        raise ValueError(f"no such axis: {axis!r}")
    if axis.kind == "tp" and (axis.split_dim is None or axis.split_dim < 0):
        raise ValueError("a tp axis has a split_dim")
    if axis.kind != "tp" and axis.split_dim is not None:
        raise ValueError(f"a {axis.kind} axis has no split_dim")
    if axis.kind == "ep" and axis.expert_id is None:
        raise ValueError("an ep axis has an expert_id")
    if axis.kind == "pp" and axis.stage_id is None:
        raise ValueError("a pp axis has a stage_id")


def _axes_of(parallelism):
    """The axes in their canonical order; ValueError for what is no layout."""
    axes = sorted(parallelism.axes, key=lambda axis: _tensors.KINDS.index(axis.kind)
                  if axis.kind in _tensors.KINDS else -1)
    for axis in axes:
        _check_axis(axis)
    if not axes or len({axis.kind for axis in axes}) != len(axes):
        raise ValueError("a layout has one axis or more, of different kinds")
    return axes


def _tp_of(axes):
    return next((axis for axis in axes if axis.kind == "tp"), None)


def _with_tp(axes, rank, size, split_dim):
    """The same layout, but for its tp axis."""
    return [ParallelAxis("tp", rank, size, split_dim, axis.expert_id, axis.stage_id)
            if axis.kind == "tp" else axis for axis in axes]


def _key_of(key, axes):
    if len(axes) == 1 and axes[0].kind == "tp":
        return f"{key}_tp_{axes[0].rank}"
    parts = []
    for axis in axes:
        part = f"{axis.kind}_{axis.rank}of{axis.size}"
        for mark, value in (("sd", axis.split_dim), ("eid", axis.expert_id),
                            ("sid", axis.stage_id)):
            part += "" if value is None else f"_{mark}{value}"
        parts.append(part)
    return f"{key}__" + "__".join(parts)


def _writer_of(given):
    """The axis that an object or a dict with rank, size and split_dim means."""
    values = []
    for name in ("rank", "size", "split_dim"):
        value = given.get(name) if isinstance(given, dict) else getattr(given, name, None)
        if value is None:
            raise ValueError("a writer_partition has rank, size and split_dim")
        values.append(operator.index(value))
    axis = ParallelAxis("tp", *values)
    _check_axis(axis)
    return axis


def _writer_key(key, axis):
    return f"{key}__writer_{axis.rank}of{axis.size}_sd{axis.split_dim}"


class _Manifest:
    """How a whole is split among its writers."""

    def __init__(self, dtype, split_dim, count, shape):
        self.dtype, self.split_dim, self.count, self.shape = dtype, split_dim, count, tuple(shape)

    def packed(self):
        dims = list(self.shape) + [-1] * (_tensors.DIMS - len(self.shape))
        return _MANIFEST.pack(_MANIFEST_MAGIC, 1, _MANIFEST.size, self.dtype, len(self.shape),
                              self.split_dim, self.count, 0, 0, *dims)

    @classmethod
    def of(cls, data):
        """None: it is no manifest."""
        if len(data) != _MANIFEST.size:
            return None
        magic, version, _, dtype, ndim, split_dim, count, _, _, *dims = _MANIFEST.unpack(data)
        if magic != _MANIFEST_MAGIC or version != 1 or not 0 <= ndim <= _tensors.DIMS or \
                not 0 <= split_dim < ndim or count < 1 or min(dims[:ndim], default=0) < 0:
            return None
        return cls(dtype, split_dim, count, dims[:ndim])


def _span(length, rank, size):
    """The part of a dimension that a rank has, where they are equal."""
    if length % size:
        raise ValueError(f"{length} is not divisible by {size}")
    return rank * (length // size), length // size


# ---- the methods --------------------------------------------------------------------------------

class ParallelMethods:
    """The methods of a store that know layouts."""

    # -- put --

    def _parallel_put(self, key, tensor, parallelism, config, writer_partition, upsert):
        if not self._is_ready():
            return _INVALID
        try:
            if writer_partition is not None:
                if parallelism is not None:
                    raise ValueError("it is one of parallelism and writer_partition")
                return self._writer_put(key, tensor, _writer_of(writer_partition), config, upsert)
            if parallelism is None:
                return self._tensor_put(key, tensor, config, upsert=upsert)
            axes = _axes_of(parallelism)
            tp = _tp_of(axes)
            if tp is not None and tp.split_dim >= tensor.dim():
                raise ValueError("the tensor has no such dimension")
        except ValueError as error:
            _tensors.log.error("%s: %s", key, error)
            return _INVALID
        code = self._tensor_put(_key_of(key, axes), tensor, config, axes, upsert)
        if code == 0 and tp is not None:
            shape = list(tensor.shape)
            shape[tp.split_dim] *= tp.size
            manifest = _Manifest(_tensors.dtype_code(tensor.dtype), tp.split_dim, tp.size, shape)
            code = self._manifest_put(f"{key}__parallelism_manifest", manifest, config, upsert)
        return code

    def _writer_put(self, key, tensor, axis, config, upsert):
        """Put one writer's part of a whole that every writer has."""
        if axis.split_dim >= tensor.dim():
            raise ValueError("the tensor has no such dimension")
        start, length = _span(tensor.shape[axis.split_dim], axis.rank, axis.size)
        part = tensor.narrow(axis.split_dim, start, length)
        code = self._tensor_put(_writer_key(key, axis), part, config, [axis], upsert)
        if code != 0:
            return code
        manifest = _Manifest(_tensors.dtype_code(tensor.dtype), axis.split_dim, axis.size,
                             tensor.shape)
        return self._manifest_put(f"{key}__writer_manifest", manifest, config, upsert)

    def _manifest_put(self, key, manifest, config, upsert):
        put = self.upsert if upsert else self.put
        return put(key, manifest.packed()) if config is None else \
            put(key, manifest.packed(), config)

    def _parallel_put_from(self, key, address, size, parallelism, config, writer_partition,
                           upsert):
        """Put what lies in a buffer: a whole is split by a single tp axis, as by
        put_tensor_with_tp_from(); of other layouts it is the part."""
        address, size = operator.index(address), operator.index(size)
        if parallelism is None and writer_partition is None:
            return self._tensor_from(key, address, size, config, upsert)
        try:
            if not self._is_ready() or address == 0 or size < _tensors.metadata_size():
                return _INVALID
            tensor = _tensors.tensor_of(_native.view(address, size))
            if writer_partition is None:
                axes = _axes_of(parallelism)
                if len(axes) == 1 and axes[0].kind == "tp":
                    return self._tensor_split(key, tensor, axes[0].size, axes[0].split_dim,
                                              config, upsert)
        except ValueError as error:
            _tensors.log.error("%s: %s", key, error)
            return _INVALID
        return self._parallel_put(key, tensor, parallelism, config, writer_partition, upsert)

    def put_tensor_with_parallelism(self, key, tensor, parallelism=None, config=None,
                                    writer_partition=None):
        """Put this rank's part, or one writer's part of the whole. 0, or a code."""
        return self._parallel_put(key, tensor, parallelism, config, writer_partition, False)

    def upsert_tensor_with_parallelism(self, key, tensor, parallelism=None, config=None,
                                       writer_partition=None):
        """The same, also where there is one already."""
        return self._parallel_put(key, tensor, parallelism, config, writer_partition, True)

    def put_tensor_with_parallelism_from(self, key, buffer_ptr, size, parallelism=None,
                                         config=None, writer_partition=None):
        """The same for a tensor, behind its metadata, in a buffer."""
        return self._parallel_put_from(key, buffer_ptr, size, parallelism, config,
                                       writer_partition, False)

    def upsert_tensor_with_parallelism_from(self, key, buffer_ptr, size, parallelism=None,
                                            config=None, writer_partition=None):
        """The same, also where there is one already."""
        return self._parallel_put_from(key, buffer_ptr, size, parallelism, config,
                                       writer_partition, True)

    def _parallel_batch(self, put, keys, columns, parallelisms, config, writer_partitions):
        count = len(keys)
        layouts = [None] * count if parallelisms is None else parallelisms
        writers = [None] * count if writer_partitions is None else writer_partitions
        if not self._same_length(keys, *columns, layouts, writers):
            return [_INVALID] * count
        return [put(key, *values, layout, config, writer) for key, *values, layout, writer
                in zip(keys, *columns, layouts, writers)]

    def batch_put_tensor_with_parallelism(self, keys, tensors_list, parallelisms=None,
                                          config=None, writer_partitions=None):
        """put_tensor_with_parallelism() of each, in a list."""
        return self._parallel_batch(self.put_tensor_with_parallelism, keys, [tensors_list],
                                    parallelisms, config, writer_partitions)

    def batch_upsert_tensor_with_parallelism(self, keys, tensors_list, parallelisms=None,
                                             config=None, writer_partitions=None):
        """upsert_tensor_with_parallelism() of each, in a list."""
        return self._parallel_batch(self.upsert_tensor_with_parallelism, keys, [tensors_list],
                                    parallelisms, config, writer_partitions)

    def batch_put_tensor_with_parallelism_from(self, keys, buffer_ptrs, sizes, parallelisms=None,
                                               config=None, writer_partitions=None):
        """put_tensor_with_parallelism_from() of each, in a list."""
        return self._parallel_batch(self.put_tensor_with_parallelism_from, keys,
                                    [buffer_ptrs, sizes], parallelisms, config, writer_partitions)

    def batch_upsert_tensor_with_parallelism_from(self, keys, buffer_ptrs, sizes,
                                                  parallelisms=None, config=None,
                                                  writer_partitions=None):
        """upsert_tensor_with_parallelism_from() of each, in a list."""
        return self._parallel_batch(self.upsert_tensor_with_parallelism_from, keys,
                                    [buffer_ptrs, sizes], parallelisms, config, writer_partitions)

    # -- get --

    def _manifest_get(self, key):
        return _Manifest.of(self.get(key)) if self.is_exist(key) == 1 else None

    def _sources_of(self, key, axes):
        """A manifest of the whole, and the key of each of its parts; None: nobody split it."""
        manifest = self._manifest_get(f"{key}__writer_manifest")
        if manifest is not None and (axes is None or len(axes) == 1):
            return manifest, [
                _writer_key(key, ParallelAxis("tp", i, manifest.count, manifest.split_dim))
                for i in range(manifest.count)]
        manifest = self._manifest_get(f"{key}__parallelism_manifest")
        if axes is None:
            axes = [ParallelAxis("tp", 0, 1, 0)]
        if manifest is None and len(axes) == 1:
            manifest = self._split_by_tp(key)
        if manifest is None:
            return None
        return manifest, [_key_of(key, _with_tp(axes, i, manifest.count, manifest.split_dim))
                          for i in range(manifest.count)]

    def _split_by_tp(self, key):
        """What the first part of put_tensor_with_tp() tells of the whole."""
        first = self._head_of(f"{key}_tp_0")
        axis = None if first is None else next((a for a in first.axes if a.kind == "tp"), None)
        if axis is None or axis.split_dim is None or axis.split_dim >= len(first.whole):
            return None
        return _Manifest(first.dtype, axis.split_dim, axis.size, first.whole)

    def _head_of(self, key):
        """The metadata of a stored tensor; None: there is none."""
        if self.get_size(key) < _tensors.metadata_size():
            return None
        try:
            return _tensors.Head(self.get(key)[:_tensors.metadata_size()])
        except ValueError:
            return None

    def _assemble(self, key, axes, tp):
        """Put a part together from what others put; None: that cannot be. No tp: the whole."""
        torch = _tensors.torch_module()
        found = self._sources_of(key, axes)
        if found is None:
            return None
        manifest, keys = found
        shape = manifest.shape
        if tp is not None and tp.split_dim >= len(shape):
            return None
        start, length = (0, shape[manifest.split_dim])
        if tp is not None and tp.split_dim == manifest.split_dim:
            start, length = _span(length, tp.rank, tp.size)
        parts, at = [], 0
        each = shape[manifest.split_dim] // manifest.count
        for i, name in enumerate(keys):
            # Equal parts begin at multiples; of unequal ones every one before has to be seen.
            if shape[manifest.split_dim] % manifest.count == 0 and \
                    (each * (i + 1) <= start or each * i >= start + length) and length > 0:
                at = each * (i + 1)
                continue
            part = self._tensor_get(name)
            if part is None or part.dim() != len(shape):
                return None
            extent = part.shape[manifest.split_dim]
            low, high = max(start, at), min(start + length, at + extent)
            if low < high:
                parts.append(part.narrow(manifest.split_dim, low - at, high - low))
            at += extent
        if at != shape[manifest.split_dim] or not parts and length > 0:
            return None
        whole = torch.cat(parts, manifest.split_dim) if parts else part
        if tp is not None and tp.split_dim != manifest.split_dim:
            whole = whole.narrow(tp.split_dim, *_span(shape[tp.split_dim], tp.rank, tp.size))
        return whole.contiguous()

    def _stored_part(self, key, axes, fetch):
        """The part as somebody put it, if it was split that way."""
        name, tp = _key_of(key, axes), _tp_of(axes)
        if self.is_exist(name) != 1:
            return None
        if tp is not None:
            head = self._head_of(name)
            own = None if head is None else next((a for a in head.axes if a.kind == "tp"), None)
            if own is None or (own.size, own.split_dim) != (tp.size, tp.split_dim):
                return None
        return fetch(name)

    def _parallel_get(self, key, target, fetch, keep):
        """`fetch` gets a stored tensor by its key, `keep` gives one that was put together."""
        mode = "as_stored" if target is None else target.mode
        layout = None if target is None else target.parallelism
        if not self._is_ready() or (mode == "as_stored" and layout is not None) or \
                (mode == "shard" and layout is None):
            return None
        try:
            axes = None if layout is None else _axes_of(layout)
            tp = None if axes is None else _tp_of(axes)
            part = None
            if mode == "as_stored" or axes is None:
                part = fetch(key)
                if part is None and mode == "full":
                    part = keep(self._assemble(key, None, None))
            elif mode == "full":
                part = None if tp is None else keep(self._assemble(key, axes, None))
            else:
                part = self._stored_part(key, axes, fetch)
                if part is None and tp is not None:
                    part = keep(self._assemble(key, axes, tp))
            return part
        except ValueError as error:
            _tensors.log.error("%s: %s", key, error)
            return None

    def get_tensor_with_parallelism(self, key, target=None):
        """The tensor as it is stored, a part of it, or all of it; None if it cannot be had."""
        return self._parallel_get(key, target, self._tensor_get, lambda tensor: tensor)

    def batch_get_tensor_with_parallelism(self, keys, targets=None):
        """get_tensor_with_parallelism() of each, in a list."""
        targets = [None] * len(keys) if targets is None else targets
        if len(targets) != len(keys):
            return [None] * len(keys)
        return [self.get_tensor_with_parallelism(*row) for row in zip(keys, targets)]

    def get_tensor_with_parallelism_into(self, key, buffer_ptr, size, target=None):
        """The same in a buffer, behind its metadata."""
        address, size = operator.index(buffer_ptr), operator.index(size)

        def keep(tensor):
            if tensor is None:
                return None
            head, data, owner = _tensors.parts_of(tensor)
            if address == 0 or len(head) + len(data) > size:
                return None
            ctypes.memmove(address, head, len(head))
            ctypes.memmove(address + len(head), data, len(data))
            del owner
            return _tensors.tensor_of(_native.view(address, len(head) + len(data)))

        return self._parallel_get(
            key, target, lambda name: self._tensor_into(name, address, size), keep)

    def batch_get_tensor_with_parallelism_into(self, keys, buffer_ptrs, sizes, targets=None):
        """get_tensor_with_parallelism_into() of each, in a list."""
        targets = [None] * len(keys) if targets is None else targets
        if not self._is_ready() or not self._same_length(keys, buffer_ptrs, sizes, targets):
            return [_INVALID] * len(keys)
        return [self.get_tensor_with_parallelism_into(*row)
                for row in zip(keys, buffer_ptrs, sizes, targets)]
