# SPDX-License-Identifier: Apache-2.0
"""Yuebing: a store of KV blocks for LLM inference."""
from __future__ import annotations

from typing import Optional, Sequence

from yuebing._native import key_chain as _key_chain
from yuebing._native import version as _version
from yuebing.store import Entry, Error, Fetch, Handle, Result, Store

__version__: str = _version()
__all__ = ["Entry", "Error", "Fetch", "Handle", "Result", "Store", "__version__", "block_keys"]


def block_keys(tokens: Sequence[int], block: int, salt: Optional[str] = None) -> list[bytes]:
    """The keys of a sequence's blocks of `block` tokens, 16 bytes each.

    Key i covers the tokens before (i + 1) * block, so that equal prefixes have equal keys, on every
    machine and in every version. `salt` separates models and adapters.
    """
    return _key_chain(tokens, block, salt)
