# SPDX-License-Identifier: Apache-2.0
"""Yuebing: a store of KV blocks for LLM inference, and transfers between memories."""
from yuebing._native import version as _version

__version__ = _version()


def block_keys(tokens, block, salt=None):
    """The keys of a sequence's blocks of `block` tokens, 16 bytes each.

    Key i covers the tokens before (i + 1) * block, so that equal prefixes have equal keys, on every
    machine and in every version. `salt` separates models and adapters.
    """
    from yuebing._native import key_chain
    return key_chain(tokens, block, salt)


__all__ = ["__version__", "block_keys"]
