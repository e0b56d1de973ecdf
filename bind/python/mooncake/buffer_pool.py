# SPDX-License-Identifier: Apache-2.0
"""Buffers that are registered with a store, lent and taken back.

Registering memory is slow and values come in a few sizes, so a pool keeps what it once registered,
by size class: powers of two from `min_size_class` on. A larger request than `max_size_class` gets a
region of its own, which goes when it is released.
"""
import mmap
import operator
import threading
import time

from yuebing import _native

__all__ = [
    "BufferLease",
    "BufferLeaseView",
    "BufferPool",
    "RegisteredBufferLease",
    "RegisteredBufferLeaseView",
    "RegisteredBufferPool",
]


class _Region:
    """Memory that is registered with the store, whole."""

    def __init__(self, store, size, alignment):
        size = -(-size // alignment) * alignment
        self.size = size
        self.memory = mmap.mmap(-1, size)
        self.ptr = _native.address_of(self.memory)
        self.store = store
        code = store.register_buffer(self.ptr, size)
        if code != 0:
            self.memory.close()
            raise RuntimeError(f"cannot register {size} bytes: {code} "
                               f"({_native.code_text(code)})")

    def close(self):
        self.store.unregister_buffer(self.ptr)
        try:
            self.memory.close()
        except BufferError:
            pass  # Somebody still looks at it; it goes with the last view.


class BufferLeaseView(_native.OwnedView):
    """A lease's bytes through the buffer protocol; while it is looked at the lease lives."""

    def __new__(cls, lease):
        return super().__new__(cls, lease, lease.ptr, lease.size)

    @property
    def buffer(self):
        return memoryview(self)


class BufferLease:
    """A buffer that is lent until release(), or the end of its `with` block."""

    def __init__(self, pool, block, size):
        self._pool = pool
        self._block = block
        self._view = None
        self.ptr = block.ptr
        self.size = size

    @property
    def buffer(self):
        """A memoryview of its bytes."""
        if self._block is None:
            raise ValueError("the buffer was released")
        if self._view is None:
            whole = memoryview(self._block.region.memory)
            start = self._block.ptr - self._block.region.ptr
            self._view = whole[start:start + self.size]
        return self._view

    def view(self):
        """Its memory, to fill and to read, for a `with`."""
        return BufferLeaseView(self)

    def release(self):
        """Give it back; again is fine."""
        block, self._block, self._view = self._block, None, None
        if block is not None:
            self._pool._take_back(block)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def __del__(self):
        self.release()


class _Block:
    """A piece of a region, of one size class."""

    __slots__ = ("region", "ptr", "size", "dedicated")

    def __init__(self, region, ptr, size, dedicated):
        self.region = region
        self.ptr = ptr
        self.size = size
        self.dedicated = dedicated


class BufferPool:
    """Lends registered buffers; `max_bytes` (0: no limit) bounds what it holds."""

    def __init__(self, store, max_bytes=0, min_size_class=65536, max_size_class=None,
                 alignment=8388608, block_on_exhaustion=True, default_timeout=None,
                 max_regions=None, prewarm_size=None, prewarm_count=0):
        self._store = store
        self._max_bytes = operator.index(max_bytes)
        self._min_class = operator.index(min_size_class)
        self._max_class = self._max_bytes if max_size_class is None else \
            operator.index(max_size_class)
        self._alignment = operator.index(alignment)
        if self._alignment <= 0 or self._alignment & (self._alignment - 1) or \
                self._alignment % mmap.PAGESIZE:
            raise ValueError(f"alignment is a power of two and a multiple of {mmap.PAGESIZE}, "
                             f"not {alignment}")
        if self._min_class <= 0:
            raise ValueError("min_size_class is at least 1")
        self._block = bool(block_on_exhaustion)
        self._timeout = default_timeout
        self._max_regions = max_regions
        self._changed = threading.Condition()
        self._free = {}  # Size class -> blocks.
        self._regions = []
        self._held = 0  # Bytes of all regions, also of those that are being made.
        self._making = 0
        self._lent = 0
        self._closed = False
        if prewarm_size is not None and prewarm_count:
            self.prewarm(prewarm_size, prewarm_count)

    def acquire(self, size, block=None, timeout=None):
        """A BufferLease of `size` bytes. MemoryError when there is none (in time)."""
        size = operator.index(size)
        if size <= 0:
            raise ValueError("size is at least 1")
        if self._max_bytes and size > self._max_bytes:
            raise ValueError(f"{size} bytes are more than the pool may hold, {self._max_bytes}")
        block = self._block if block is None else block
        timeout = self._timeout if timeout is None else timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        return BufferLease(self, self._take(size, block, deadline), size)

    buffer = acquire

    def prewarm(self, size, count):
        """Have `count` buffers of that size ready."""
        leases = [self.acquire(size, block=False) for _ in range(operator.index(count))]
        for lease in leases:
            lease.release()

    def close(self):
        """Unregister everything; RuntimeError while buffers are lent."""
        with self._changed:
            if self._lent:
                raise RuntimeError(f"{self._lent} buffers are still lent")
            self._closed = True
            regions, self._regions, self._free = self._regions, [], {}
            self._held = 0
        for region in regions:
            region.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- within --

    def _class_of(self, size):
        found = self._min_class
        while found < size:
            found *= 2
        return found

    def _take(self, size, block, deadline):
        wanted = self._class_of(size)
        dedicated = bool(self._max_class) and size > self._max_class
        if self._max_bytes:
            wanted = min(wanted, self._max_bytes)
        while True:
            with self._changed:
                if self._closed:
                    raise RuntimeError("the pool is closed")
                free = self._free.get(wanted)
                if free and not dedicated:
                    self._lent += 1
                    return free.pop()
                region_bytes = -(-wanted // self._alignment) * self._alignment
                if self._may_grow(region_bytes):
                    self._held += region_bytes
                    self._making += 1
                    self._lent += 1
                elif not self._drop_idle():
                    self._wait(size, block, deadline)
                    continue
                else:
                    continue
            return self._grow(wanted, region_bytes, dedicated)

    def _may_grow(self, region_bytes):
        limit = self._max_bytes and -(-self._max_bytes // self._alignment) * self._alignment
        if limit and self._held + region_bytes > limit:
            return False
        return self._max_regions is None or \
            len(self._regions) + self._making < self._max_regions

    def _wait(self, size, block, deadline):
        left = None if deadline is None else deadline - time.monotonic()
        if not block or (left is not None and left <= 0):
            raise MemoryError(f"no buffer of {size} bytes is free")
        self._changed.wait(left)

    def _drop_idle(self):
        """Unregister a region of which nothing is lent, to make room for another size."""
        idle = {}
        for blocks in self._free.values():
            for block in blocks:
                idle[block.region] = idle.get(block.region, 0) + block.size
        for region in self._regions:
            if idle.get(region, 0) and idle[region] == region.carved:
                self._regions.remove(region)
                self._held -= region.size
                for size, blocks in self._free.items():
                    self._free[size] = [b for b in blocks if b.region is not region]
                region.close()
                return True
        return False

    def _grow(self, wanted, region_bytes, dedicated):
        """Make a region, and blocks of it; the first is lent."""
        try:
            region = _Region(self._store, region_bytes, self._alignment)
        except Exception:
            with self._changed:
                self._held -= region_bytes
                self._making -= 1
                self._lent -= 1
                self._changed.notify_all()
            raise
        count = 1 if dedicated else max(1, region.size // wanted)
        blocks = [_Block(region, region.ptr + i * wanted, wanted, dedicated)
                  for i in range(count)]
        region.carved = count * wanted
        with self._changed:
            self._making -= 1
            self._regions.append(region)
            self._free.setdefault(wanted, []).extend(blocks[1:])
            self._changed.notify_all()
        return blocks[0]

    def _take_back(self, block):
        region = None
        with self._changed:
            self._lent -= 1
            if block.dedicated or self._closed:
                region = block.region
                if region in self._regions:
                    self._regions.remove(region)
                    self._held -= region.size
            else:
                self._free.setdefault(block.size, []).append(block)
            self._changed.notify_all()
        if region is not None:
            region.close()


RegisteredBufferLease = BufferLease
RegisteredBufferLeaseView = BufferLeaseView
RegisteredBufferPool = BufferPool
