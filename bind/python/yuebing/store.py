# SPDX-License-Identifier: Apache-2.0
"""Blocks of a store: put, got, looked for and removed, also from a coroutine.

    with yuebing.Store("127.0.0.1:14700") as store:
        store.put("key", b"value")
        store.get("key")                        # b"value", or None
        store.put_many({"a": x, "b": y})        # Any buffers.
        store.get_many_into(["a", "b"], [u, v]) # Straight into your memory.
        fetch = store.fetch(["a", "b"], [u, v]) # Returns when it is known where they are.
        async for index, result in fetch:       # Or await fetch, fetch.wait(1.0), fetch.fileno() ...
            ...

Keys are str or bytes, values whatever shows its bytes through the buffer protocol. What fails for
one key of a batch is in its Result; what fails as a whole raises yuebing.Error.
"""
from __future__ import annotations

import asyncio
import contextlib
import math
from typing import (Any, AsyncIterator, Callable, Iterable, Iterator, Mapping, NamedTuple, Optional,
                    Sequence, Union)

from yuebing import _native

Key = Union[str, bytes]

_PUT, _GET, _EXIST, _REMOVE = range(4)
_ALL, _PREFIX, _REGEX = range(3)
_NAMES = {value: name for name, value in _native.STATUSES.items()}
_CLASSES = {"first_token": 0, "throughput": 1, "background": 2}
_TIERS = (None, "device", "dram", "ssd", "object")


class Error(Exception):
    """What was asked for did not happen; `status` is its name, such as "TIMED_OUT"."""

    def __init__(self, status: int, message: str = "") -> None:
        self.status = _NAMES.get(status, "UNKNOWN")
        super().__init__(message or f"{self.status}: {_native.status_text(status)}")


class Result(NamedTuple):
    """How one key of a batch ended."""

    status: str  # "OK", "NOT_FOUND", "EXISTS" ...
    size: int  # Of the whole value.
    bytes: int  # That were read.
    version: int
    replicas: int

    @property
    def ok(self) -> bool:
        return self.status == "OK"


class Entry(NamedTuple):
    """A key of the store, once for each replica."""

    key: bytes
    size: int
    version: int


def _results(told: Iterable[tuple]) -> list[Result]:
    return [Result(_NAMES.get(one[0], "UNKNOWN"), *one[1:]) for one in told]


def _nanoseconds(seconds: Optional[float]) -> int:
    """0, which is the default, for None."""
    if seconds is None:
        return 0
    if not seconds > 0 or math.isinf(seconds):
        raise ValueError(f"a timeout is a number of seconds above 0, not {seconds}")
    return max(1, int(seconds * 1e9))


def _milliseconds(seconds: Optional[float]) -> int:
    """0, which is no limit, for None."""
    return 0 if seconds is None else max(1, int(seconds * 1000))


def _options(timeout: Optional[float] = None, work_class: str = "throughput", replicas: int = 1,
             replace: bool = False, soft_pin: bool = False, hard_pin: bool = False,
             ttl: Optional[float] = None, preferred: Sequence[str] = (), hold: float = 0.0,
             force: bool = False, soft_pin_ttl: Optional[float] = None) -> tuple:
    if work_class not in _CLASSES:
        raise ValueError(f"work_class is one of {', '.join(_CLASSES)}, not {work_class!r}")
    return (_nanoseconds(timeout), _CLASSES[work_class], replicas, replace, soft_pin, hard_pin,
            _milliseconds(ttl), _milliseconds(soft_pin_ttl), tuple(preferred), int(hold * 1000),
            force)


class Handle:
    """A batch that is under way: wait for it, or `await` it. Its memory is yours again when it
    has ended, and not before."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def wait(self, timeout: Optional[float] = None) -> list[Result]:
        """The results; TimeoutError leaves it running."""
        limit = 3600.0 if timeout is None else timeout
        while True:
            status = self._batch.wait(_nanoseconds(limit) if limit > 0 else 0)
            if status == _native.STATUSES["OK"]:
                return _results(self._batch.results())
            if status not in (_native.STATUSES["TIMED_OUT"], _native.STATUSES["IN_PROGRESS"]):
                raise Error(status)
            if timeout is not None:
                raise TimeoutError("the batch has not ended")

    def done(self) -> bool:
        try:
            self.wait(0)
        except TimeoutError:
            return False
        return True

    def cancel(self) -> None:
        """Ask it to end early; it still ends."""
        self._batch.cancel()

    def fileno(self) -> int:
        """Readable when it has ended; for select() and event loops. The handle closes it."""
        return self._batch.fileno()

    def _wake(self) -> None:
        """Something has ended. Whoever waits, in whatever loop, looks for itself what it was."""
        self._batch.heard()
        for loop, event in tuple(self._waiting):
            with contextlib.suppress(RuntimeError):  # A loop that was closed meanwhile.
                loop.call_soon_threadsafe(event.set)

    async def _until(self, reached: Callable[[], bool]) -> None:
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        self._waiting.add((loop, event))
        loop.add_reader(self.fileno(), self._wake)
        try:
            while not reached():
                await event.wait()
                event.clear()
        finally:
            self._waiting.remove((loop, event))
            if all(other is not loop for other, _ in tuple(self._waiting)):
                loop.remove_reader(self.fileno())

    async def _ended(self) -> list[Result]:
        try:
            await self._until(self.done)
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self.wait()

    def __await__(self):
        return self._ended().__await__()


class Fetch(Handle):
    """Blocks on their way into your buffers, one by one, each in its own time.

    What is known from the start: `tiers`, where each key's block lies ("dram", "ssd", "object",
    "device", or None: nowhere, or nobody knows), and `ready_in`, in how many seconds it may be
    here, as of the lookup (None: not known). A key's buffer is yours again when that key has ended.

        for index, result in fetch: ...         # As they come, or in the list's order (`ordered`).
        async for index, result in fetch: ...
        results = fetch.wait()                  # All; or `await fetch`.

    Each key is handed out once, by whichever of next() and the loops asks first, on any thread.
    """

    def __init__(self, batch: Any) -> None:
        super().__init__(batch)
        places = batch.places()
        self.tiers: tuple[Optional[str], ...] = tuple(
            _TIERS[tier] if tier < len(_TIERS) else None for tier, _ in places)
        self.ready_in: tuple[Optional[float], ...] = tuple(
            ready_ns / 1e9 if ready_ns else None for _, ready_ns in places)

    def __len__(self) -> int:
        return len(self.tiers)

    def result(self, index: int) -> Optional[Result]:
        """How one key ended; None: it has not yet."""
        told = self._batch.result(index)
        return None if told is None else _results([told])[0]

    def next(self, timeout: Optional[float] = None) -> Optional[int]:
        """The place in the list of the next key that has ended; None: all were handed out.
        TimeoutError: none has in that time; of 0 seconds it only looks."""
        limit = 3600.0 if timeout is None else timeout
        while True:
            status, index = self._batch.next(_nanoseconds(limit) if limit > 0 else 0)
            if status == _native.STATUSES["OK"]:
                return index
            if status == _native.STATUSES["NOT_FOUND"]:
                return None
            if status != _native.STATUSES["TIMED_OUT"]:
                raise Error(status)
            if timeout is not None:
                raise TimeoutError("no more keys have ended")

    def cancel(self, index: Optional[int] = None) -> None:
        """Ask one key, or all, to end early: CANCELLED, unless it came first. The others go on."""
        self._batch.cancel(index)

    def fileno(self) -> int:
        """Readable when a key has ended, and when all have; read 8 bytes to hear of the next. The
        handle closes it. Not to be read while something awaits the handle."""
        return super().fileno()

    def _told(self, index: int) -> tuple[int, Result]:
        return index, _results([self._batch.result(index)])[0]

    def __iter__(self) -> Iterator[tuple[int, Result]]:
        while (index := self.next()) is not None:
            yield self._told(index)

    async def __aiter__(self) -> AsyncIterator[tuple[int, Result]]:
        ended: list[Optional[int]] = []

        def reached() -> bool:
            with contextlib.suppress(TimeoutError):
                ended.append(self.next(0))
            return bool(ended)

        while True:
            await self._until(reached)
            index = ended.pop()
            if index is None:
                return
            yield self._told(index)


class Store:
    """A client of a cluster, by the address of its directory."""

    def __init__(self, directory: str = "127.0.0.1:14700", *, secret_file: Optional[str] = None,
                 tenant: Optional[str] = None, tls: bool = False, shared_memory: bool = True,
                 timeout: Optional[float] = None) -> None:
        self._client = _native.Client()
        status, message = self._client.open(directory, secret_file, tenant, tls, shared_memory,
                                            _nanoseconds(timeout))
        if status != _native.STATUSES["OK"]:
            raise Error(status, message)

    def close(self) -> None:
        """Leave the cluster; again is fine. Blocks stay."""
        self._client.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # -- one key --

    def put(self, key: Key, value: Any, **options: Any) -> bool:
        """Whether the value is new: False when the key has one already, which stays. Options:
        timeout, work_class, replicas, replace, soft_pin, soft_pin_ttl, hard_pin, ttl, preferred.
        A soft pin ends when nobody has read the block for soft_pin_ttl seconds."""
        result, = self.put_many({key: value}, **options)
        if result.status == "EXISTS":
            return False
        self._expect(result)
        return True

    def get(self, key: Key, **options: Any) -> Optional[bytes]:
        """The value, or None."""
        value, = self.get_many([key], **options)
        return value

    def get_into(self, key: Key, buffer: Any, offset: Optional[int] = None,
                 **options: Any) -> Optional[int]:
        """How many bytes were read into the buffer, from `offset` on as much as it takes; None
        when there is no such key."""
        offsets = None if offset is None else [offset]
        result, = self.get_many_into([key], [buffer], offsets, **options)
        if result.status == "NOT_FOUND":
            return None
        self._expect(result)
        return result.bytes

    def exist(self, key: Key, **options: Any) -> bool:
        result, = self.exist_many([key], **options)
        return result

    def remove(self, key: Key, **options: Any) -> bool:
        """Whether it was there. Option force: also what is held."""
        result, = self.remove_many([key], **options)
        if result.status == "NOT_FOUND":
            return False
        self._expect(result)
        return True

    # -- many --

    def put_many(self, values: Mapping[Key, Any], **options: Any) -> list[Result]:
        return self._run(_PUT, list(values), list(values.values()), None, options)

    def get_many(self, keys: Sequence[Key], **options: Any) -> list[Optional[bytes]]:
        """The values; None for each key that is not there."""
        keys = list(keys)
        sizes = [one.size if one.ok else -1
                 for one in self._run(_EXIST, keys, None, None, dict(options))]
        values: list[Optional[bytes]] = [None] * len(keys)
        wanted = [i for i, size in enumerate(sizes) if size >= 0]
        # The size that an index tells is rounded up, and may have changed: then once more.
        for _ in range(8):
            if not wanted:
                break
            rooms = [bytearray(sizes[i]) for i in wanted]
            results = self._run(_GET, [keys[i] for i in wanted], rooms, None, dict(options))
            again = []
            for i, room, result in zip(wanted, rooms, results):
                if result.ok:
                    values[i] = bytes(memoryview(room)[:result.bytes])
                elif result.status == "TOO_SMALL":
                    sizes[i] = result.size
                    again.append(i)
                elif result.status != "NOT_FOUND":
                    self._expect(result)
            wanted = again
        return values

    def get_many_into(self, keys: Sequence[Key], buffers: Sequence[Any],
                      offsets: Optional[Sequence[int]] = None, **options: Any) -> list[Result]:
        return self._run(_GET, keys, buffers, offsets, options)

    def exist_many(self, keys: Sequence[Key], **options: Any) -> list[bool]:
        """Option hold: keep what is there so many seconds."""
        return [one.ok for one in self._run(_EXIST, keys, None, None, options)]

    def remove_many(self, keys: Sequence[Key], **options: Any) -> list[Result]:
        return self._run(_REMOVE, keys, None, None, options)

    def remove_all(self, force: bool = False, timeout: Optional[float] = None) -> int:
        """How many blocks were removed: without force, of those that nobody holds or reads."""
        status, count = self._client.remove_all(force, _nanoseconds(timeout))
        if status != _native.STATUSES["OK"]:
            raise Error(status)
        return count

    def list(self, prefix: str = "", *, regex: Optional[str] = None,
             timeout: Optional[float] = None) -> list[Entry]:
        """What is there, by prefix or by a regular expression (PCRE2, found anywhere). Not atomic."""
        match = _ALL if not prefix else _PREFIX
        if regex is not None:
            match, prefix = _REGEX, regex
        status, entries = self._client.list(match, prefix, _nanoseconds(timeout))
        if status != _native.STATUSES["OK"]:
            raise Error(status)
        return [Entry(*entry) for entry in entries]

    # -- beside other work --

    def fetch(self, keys: Sequence[Key], buffers: Sequence[Any],
              offsets: Optional[Sequence[int]] = None, *, ordered: bool = False, window: int = 0,
              timeouts: Optional[Sequence[Optional[float]]] = None, **options: Any) -> Fetch:
        """Begin to read into buffers; returns when it is known where the blocks are.

        `ordered`: keys are handed out in the order of the list. `window`: at most so many are asked
        for at a time. `timeouts`: seconds for each key (None: as long as all); the option `timeout`
        is for all of them. A buffer is the fetch's until its key has ended.
        """
        limits = None if timeouts is None else [_nanoseconds(one) for one in timeouts]
        status, batch = self._client.fetch(keys, buffers, offsets, _options(**options), limits,
                                           ordered, window)
        if status != _native.STATUSES["OK"]:
            raise Error(status)
        return Fetch(batch)

    def send(self, values: Mapping[Key, Any], **options: Any) -> Handle:
        """Begin to put."""
        return self._submit(_PUT, list(values), list(values.values()), None, options)

    def look(self, keys: Sequence[Key], **options: Any) -> Handle:
        """Begin to look which are there."""
        return self._submit(_EXIST, keys, None, None, options)

    # -- memory --

    def register(self, buffer: Any) -> None:
        """Tell of memory that values come from and go to; it makes that faster."""
        view = memoryview(buffer)
        status = self._client.register(_native.address_of(view), view.nbytes)
        if status != _native.STATUSES["OK"]:
            raise Error(status)

    def unregister(self, buffer: Any) -> None:
        status = self._client.register(_native.address_of(memoryview(buffer)), 0)
        if status != _native.STATUSES["OK"]:
            raise Error(status)

    # -- within --

    @staticmethod
    def _expect(result: Result) -> None:
        if not result.ok:
            raise Error(_native.STATUSES[result.status])

    def _run(self, op: int, keys: Sequence[Key], buffers: Optional[Sequence[Any]],
             offsets: Optional[Sequence[int]], options: dict) -> list[Result]:
        status, told = self._client.run(op, keys, buffers, offsets, _options(**options))
        if status != _native.STATUSES["OK"]:
            raise Error(status)
        return _results(told)

    def _submit(self, op: int, keys: Sequence[Key], buffers: Optional[Sequence[Any]],
                offsets: Optional[Sequence[int]], options: dict) -> Handle:
        status, batch = self._client.submit(op, keys, buffers, offsets, _options(**options))
        if status != _native.STATUSES["OK"]:
            raise Error(status)
        return Handle(batch)
