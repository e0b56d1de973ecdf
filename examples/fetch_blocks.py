#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Work on blocks as they come: a coroutine that waits for nothing but the next of them.

    yuebing serve &
    fetch_blocks.py

Puts the blocks of a made-up prompt, then loads them like an engine would: it learns at once where
each block lies and computes what is not there, while the others arrive. Needs the package yuebing.
"""

import argparse
import asyncio
import hashlib

import yuebing

TOKENS, BLOCK, BYTES = 512, 16, 65536


def compute(key):
    """Stands for what an engine computes of a block of tokens."""
    return hashlib.shake_256(key).digest(BYTES)


async def load(store, keys):
    buffers = [bytearray(BYTES) for _ in keys]
    fetch = store.fetch(keys, buffers, timeout=10)
    print(f"{len(keys)} blocks, of which somewhere: {sum(tier is not None for tier in fetch.tiers)}")
    loaded = computed = 0
    async for index, result in fetch:
        if result.ok:
            loaded += 1
        else:  # Not there, or not in time: what is stored may always be computed again.
            buffers[index][:] = compute(keys[index])
            computed += 1
    print(f"loaded {loaded}, computed {computed}")
    return buffers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", default="127.0.0.1:14700", help="default: %(default)s")
    options = parser.parse_args()
    keys = yuebing.block_keys(range(TOKENS), BLOCK, salt="example")
    with yuebing.Store(options.directory) as store:
        store.put_many({key: compute(key) for key in keys[:len(keys) * 3 // 4]})
        buffers = asyncio.run(load(store, keys))
    assert all(bytes(one) == compute(key) for key, one in zip(keys, buffers))


if __name__ == "__main__":
    main()
