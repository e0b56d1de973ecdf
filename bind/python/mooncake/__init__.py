# SPDX-License-Identifier: Apache-2.0
"""The package that engines import for their store and their transfers, on Yuebing."""
import os as _os

from yuebing import _foreign

_foreign.refuse(_os.path.dirname(_os.path.abspath(__file__)))

from mooncake.buffer_pool import (  # noqa: E402
    BufferLease,
    BufferLeaseView,
    BufferPool,
    RegisteredBufferLease,
    RegisteredBufferLeaseView,
    RegisteredBufferPool,
)
from yuebing._native import version as _version  # noqa: E402

__version__ = _version()
__all__ = [
    "BufferLease",
    "BufferLeaseView",
    "BufferPool",
    "RegisteredBufferLease",
    "RegisteredBufferLeaseView",
    "RegisteredBufferPool",
]
