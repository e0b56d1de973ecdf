# SPDX-License-Identifier: Apache-2.0
"""Host memory that the ranks of a group share: allocated once, by its owner, and mapped by all.

A rank makes its segment, tells the others its blob, and completes with the blobs of all, in the
order of ranks. The memory has no name that somebody else could open or that would outlive a crash:
ranks reach it through their owner, so they run on one host, under one user, and see each other's
processes.
"""
import ctypes
import json
import math
import mmap as _mmap
import os

_ALIGNMENT = 4096


class SharedSegmentError(RuntimeError):
    """A segment cannot be made, or has no such block."""


class RawSegment:
    """The bytes; `mooncake.engine.SharedSegment`."""

    def __init__(self, name, size, world_size, rank_id, owner_rank):
        self._told = {"name": name, "size": size, "world_size": world_size,
                      "owner_rank": owner_rank}
        self._rank = rank_id
        self._size = size
        self._map = None
        self._base = 0
        self._descriptor = -1

    @staticmethod
    def supported(mmap=True, host_register=False):
        """Whether memory can be shared that way: only as pages of the host."""
        return bool(mmap) and not host_register

    @classmethod
    def create(cls, name, size, world_size, rank_id, owner_rank=0, device_id=0, mmap=True,
               host_register=False):
        """(segment, blob). RuntimeError for what cannot be."""
        if not cls.supported(mmap, host_register):
            raise RuntimeError("shared segments are pages of the host: mmap=True, "
                               "host_register=False")
        if size <= 0 or world_size < 1 or not 0 <= rank_id < world_size or \
                not 0 <= owner_rank < world_size:
            raise RuntimeError(f"no such segment: {size} bytes, rank {rank_id} of {world_size}, "
                               f"owner {owner_rank}")
        segment = cls(name, size, world_size, rank_id, owner_rank)
        blob = dict(segment._told, rank=rank_id)
        if rank_id == owner_rank:
            try:
                segment._descriptor = os.memfd_create("mooncake-segment", os.MFD_CLOEXEC)
                os.ftruncate(segment._descriptor, size)
                segment._take(segment._descriptor)
            except OSError as error:
                segment.close()
                raise RuntimeError(f"a segment of {size} bytes: {error}") from error
            about = os.fstat(segment._descriptor)
            blob.update(process=os.getpid(), descriptor=segment._descriptor,
                        identity=[about.st_dev, about.st_ino])
        return segment, json.dumps(blob, sort_keys=True).encode()

    def _take(self, descriptor):
        self._map = _mmap.mmap(descriptor, self._size)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def complete(self, blobs):
        """Map the owner's memory. RuntimeError if the ranks do not agree."""
        if len(blobs) != self._told["world_size"]:
            raise RuntimeError(f"{len(blobs)} blobs for {self._told['world_size']} ranks")
        try:
            told = [json.loads(blob) for blob in blobs]
            for rank, one in enumerate(told):
                if one["rank"] != rank or any(one[key] != value
                                              for key, value in self._told.items()):
                    raise RuntimeError(f"rank {rank} means another segment than rank "
                                       f"{self._rank}: {one} and {self._told}")
            if self._map is None:
                self._open(told[self._told["owner_rank"]])
        except (ValueError, KeyError, TypeError) as error:
            raise RuntimeError(f"a blob is none: {error}") from error

    def _open(self, owner):
        path = f"/proc/{int(owner['process'])}/fd/{int(owner['descriptor'])}"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                about = os.fstat(descriptor)
                if [about.st_dev, about.st_ino] != owner["identity"] or \
                        about.st_size != self._size:
                    raise RuntimeError(f"{path} is not the owner's segment any more")
                self._take(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise RuntimeError(f"the owner's segment cannot be opened ({error}); ranks run on one "
                               "host, under one user, in one PID namespace") from error

    def ready(self):
        """Whether it is mapped here."""
        return self._map is not None

    def base_addr(self):
        """The address here; 0: not complete."""
        return self._base

    def device_addr(self):
        """0: no device reaches it by an address of its own."""
        return 0

    def size(self):
        """Its bytes."""
        return self._size

    def close(self):
        """Let its descriptor go; again is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    __del__ = close


# ---- blocks of tensors --------------------------------------------------------------------------

def shared_segment_supported(mmap=True, host_register=False):
    """Whether such a segment can be had here."""
    return RawSegment.supported(mmap, host_register)


def _gather(value, world_size, group):
    """What every rank says, in their order."""
    if world_size == 1:
        return [value]
    if group is None:
        raise SharedSegmentError("more than one rank needs comm_group")
    import torch.distributed

    group = getattr(group, "cpu_group", group)  # vLLM's coordinators have one for the host.
    values = [None] * world_size
    torch.distributed.all_gather_object(values, value, group=group)
    return values


def create_shared_segment(name, blocks, world_size, rank_id, owner_rank=0, device_id=None,
                          comm_group=None, mmap=True, host_register=False, *, tp_group=None):
    """A segment with `blocks`: {name: {"count", "shape", "dtype"}}. Every rank of the group calls
    this alike; SharedSegmentError, on all of them, if one could not."""
    layout, size = {}, 0
    for block in sorted(blocks):
        shape, count = tuple(blocks[block]["shape"]), int(blocks[block]["count"])
        dtype = blocks[block]["dtype"]
        if count < 1 or min(shape, default=1) < 1:
            raise SharedSegmentError(f"block {block!r} is empty")
        each = math.prod(shape) * dtype.itemsize
        stride = -(-each // _ALIGNMENT) * _ALIGNMENT
        layout[block] = (size, stride, count, shape, dtype)
        size += count * stride
    group = comm_group if comm_group is not None else tp_group
    segment, blob, error = None, b"", ""
    try:
        segment, blob = RawSegment.create(f"{name}|{layout}", size, world_size, rank_id,
                                          owner_rank, device_id or 0, mmap, host_register)
    except RuntimeError as raised:
        error = str(raised)
    for step in ("create", "complete"):
        told = _gather((error, blob), world_size, group)
        for rank, (failed, _) in enumerate(told):
            if failed:
                raise SharedSegmentError(f"{step} of {name!r} failed on rank {rank}: {failed}")
        if step == "create":
            try:
                segment.complete([one for _, one in told])
            except RuntimeError as raised:
                error = str(raised)
    return SharedSegment(segment, layout)


class SharedSegment:
    """A complete segment; its memory lives as long as it, or a tensor of it."""

    def __init__(self, segment, layout):
        self._segment = segment
        self._layout = layout

    def tensors(self, block):
        """The block's tensors, on the shared memory."""
        import torch

        if block not in self._layout:
            raise SharedSegmentError(f"no block {block!r}")
        offset, stride, count, shape, dtype = self._layout[block]
        return [torch.frombuffer(self._segment._map, dtype=dtype, count=math.prod(shape),
                                 offset=offset + i * stride).reshape(shape) for i in range(count)]

    @property
    def size(self):
        return self._segment.size()


__all__ = ["SharedSegment", "SharedSegmentError", "create_shared_segment",
           "shared_segment_supported"]
