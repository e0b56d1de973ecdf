# SPDX-License-Identifier: Apache-2.0
"""Memory of a rank: the host's, or the stand-in device's, as tensors and as numbers.

Device memory is a range of addresses that nobody may touch but the driver (tests/device). A tensor
over it has its address and its size, as a tensor of a device has, and is never read: PyTorch itself
has no device here.
"""
import ctypes
import hashlib
import time

import numpy as np
import torch

DEADLINE_S = 60.0


def pattern(name, size):
    """Bytes that tell where they belong."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    return np.random.Generator(np.random.Philox(seed)).bytes(size)


def until(condition, what, seconds=DEADLINE_S):
    """Wait for a condition; what it returned."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.005)


class Host:
    kind = "host"

    def allocate(self, size):
        tensor = torch.zeros(size, dtype=torch.uint8)
        return tensor

    def write(self, address, data):
        ctypes.memmove(address, data, len(data))

    def read(self, address, size):
        return ctypes.string_at(address, size)


class Device:
    kind = "device"

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        for call, arguments in (("cuInit", (0,)),
                                ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), 0))):
            code = getattr(self.driver, call)(*arguments)
            if code != 0:
                raise RuntimeError(f"{call}: {code}")
        self.context = context
        self.touch = self.driver.standin_cuda_touch
        self.touch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)

    def allocate(self, size):
        pointer = ctypes.c_void_p()
        self.driver.cuCtxSetCurrent(self.context)
        code = self.driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
        if code != 0:
            raise RuntimeError(f"cuMemAlloc: {code}")
        self.driver.cuCtxSetCurrent(None)
        view = (ctypes.c_ubyte * size).from_address(pointer.value)
        return torch.frombuffer(view, dtype=torch.uint8, count=size)

    def write(self, address, data):
        raw = ctypes.create_string_buffer(data, len(data))
        if self.touch(address, ctypes.addressof(raw), len(data)) != 0:
            raise RuntimeError(f"{address:#x}: not device memory")

    def read(self, address, size):
        raw = ctypes.create_string_buffer(size)
        if self.touch(ctypes.addressof(raw), address, size) != 0:
            raise RuntimeError(f"{address:#x}: not device memory")
        return raw.raw

    def copies(self):
        get = self.driver.standin_cuda_get
        get.restype = ctypes.c_uint64
        return get(b"copies")


def of(kind):
    return Device() if kind == "device" else Host()


class Table:
    """Numbered pieces of memory that is registered as one, for engines that pass addresses."""

    def __init__(self, kind, pieces, size):
        self.memory = of(kind)
        self.size = size
        self.tensor = self.memory.allocate(pieces * size)
        self.base = self.tensor.data_ptr()

    def at(self, piece):
        return self.base + piece * self.size

    def fill(self, piece, name):
        self.memory.write(self.at(piece), pattern(name, self.size))

    def wrong(self, pieces, names):
        """Of which pieces the bytes are not those of the names."""
        return [p for p, n in zip(pieces, names, strict=True)
                if self.memory.read(self.at(p), self.size) != pattern(n, self.size)]
