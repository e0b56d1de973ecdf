# SPDX-License-Identifier: Apache-2.0
"""The store with a coroutine for each method: `await store.async_put(key, value)`."""
import asyncio
import functools

from mooncake.store import MooncakeDistributedStore

__all__ = ["MooncakeDistributedStoreAsync"]


class MooncakeDistributedStoreAsync(MooncakeDistributedStore):
    """`async_<method>` runs `<method>` in the event loop's default executor."""

    def __getattr__(self, name):
        if not name.startswith("async_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        method = getattr(self, name[len("async_"):])
        if not callable(method):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        @functools.wraps(method)
        async def call(*arguments, **keywords):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                None, functools.partial(method, *arguments, **keywords))

        return call
