"""Keyed hashes of ids, and the tags that represent ids in sample alignment.

Under a key, an id has two tags and an order number of 64 bits each: the 24 bytes of one keyed
BLAKE2b hash. To a party without the key these are random numbers, and it cannot tell which two tags
belong to the same id, or which order number belongs to them.

The hash processes do not use `multiprocessing`, which would fork the caller with its threads, or
run the caller's script again to start a process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt

from privet.data.frame import Ids
from privet.errors import UnavailableError

HASH_BYTES = 24
_WORKER_COMMAND = "from privet.data.id_hashing import run_hash_process; run_hash_process()"
_MAX_PROCESSES = 16


def count_hash_processes() -> int:
    """Return the number of hash processes that can run in parallel."""
    try:
        available = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        available = os.cpu_count() or 1
    return min(available, _MAX_PROCESSES)


def hash_texts(texts: Iterable[bytes], key: bytes, purpose: bytes) -> bytes:
    """Return the concatenated keyed hashes of texts; `purpose` separates uses of one key."""
    start = hashlib.blake2b(digest_size=HASH_BYTES, key=key, person=purpose)
    digests = []
    for text in texts:
        each = start.copy()  # saves hashing the key again
        each.update(text)
        digests.append(each.digest())
    return b"".join(digests)


def hash_blocks(
    blocks: Iterable[Sequence[bytes]], key: bytes, purpose: bytes, processes: int = 1
) -> Iterator[bytes]:
    """Yield the hashes of blocks of texts, in order."""
    if processes == 1:
        yield from (hash_texts(block, key, purpose) for block in blocks)
        return
    idle: queue.SimpleQueue[_HashProcess] = queue.SimpleQueue()

    def hash_block(block: Sequence[bytes]) -> bytes:
        worker = idle.get()
        try:
            return worker.hash(block)
        finally:
            idle.put(worker)

    with contextlib.ExitStack() as stack:
        for _ in range(processes):
            idle.put(stack.enter_context(contextlib.closing(_HashProcess(key, purpose))))
        pool = stack.enter_context(ThreadPoolExecutor(processes))
        pending: deque[Future[bytes]] = deque()
        for block in blocks:
            pending.append(pool.submit(hash_block, block))
            if len(pending) > 2 * processes:  # to bound the memory
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


class _HashProcess:
    """A subprocess that receives blocks of texts and returns their hashes."""

    def __init__(self, key: bytes, purpose: bytes) -> None:
        path = os.pathsep.join(sys.path)
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _WORKER_COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C must reach only the parent, which ends it
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._handshake_texts = [key, purpose]

    def hash(self, texts: Sequence[bytes]) -> bytes:
        """Return the hashes of texts."""
        try:
            if self._handshake_texts:
                _write(self._stdin, self._handshake_texts)
                self._handshake_texts = []
            _write(self._stdin, texts)
            hashes = self._stdout.read(HASH_BYTES * len(texts))
        except OSError:
            hashes = b""
        if len(hashes) != HASH_BYTES * len(texts):
            raise UnavailableError(
                "a process that hashed ids was ended from outside: see whether memory ran out, "
                "and start again"
            )
        return hashes

    def close(self) -> None:
        """End the process."""
        self._process.kill()  # it has no state to save
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.wait()


def run_hash_process() -> None:
    """Hash the texts from stdin to stdout: the main function of a hash process."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    handshake = _read(source)
    if handshake is None:
        return
    key, purpose = handshake
    with contextlib.suppress(BrokenPipeError):
        while (texts := _read(source)) is not None:
            target.write(hash_texts(texts, key, purpose))
            target.flush()


def _write(pipe: IO[bytes], texts: Sequence[bytes]) -> None:
    """Write the number of texts, their lengths and their content."""
    lengths = np.fromiter(map(len, texts), np.uint64, len(texts))
    pipe.write(np.uint64(len(texts)).tobytes() + lengths.tobytes() + b"".join(texts))
    pipe.flush()


def _read(pipe: IO[bytes]) -> list[bytes] | None:
    """Read texts as `_write` wrote them; return None at the end."""
    count = int.from_bytes(pipe.read(8), "little")
    lengths = np.frombuffer(pipe.read(8 * count), np.uint64)
    if not count or len(lengths) != count:
        return None
    ends = np.cumsum(lengths)
    content = pipe.read(int(ends[-1]))
    starts = (ends - lengths).tolist()
    return [content[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]


TagArray = npt.NDArray[np.uint64]

_ID_PURPOSE, _DUMMY_PURPOSE = b"privet id", b"privet dummy"
# A process hashes about two million ids a second and needs half a second to start.
_PARALLEL_THRESHOLD = 1 << 22
_AS_HASHED = np.dtype("<u8")  # the same numbers on every machine


@dataclass(frozen=True, eq=False, repr=False)
class Tags:
    """The tags and order numbers of some ids."""

    pairs: TagArray
    """Two tags of each id: (ids, 2)."""
    order_numbers: TagArray
    """The sort key of each id, for parties that have the key: (ids,)."""

    @classmethod
    def from_ids(cls, ids: Ids, key: bytes, processes: int | None = None) -> Tags:
        """Hash ids, in `processes` processes or, by default, in several if there are many ids."""
        if processes is None:
            processes = count_hash_processes() if len(ids) >= _PARALLEL_THRESHOLD else 1
        return cls._read(hash_blocks(ids.iter_key_blocks(), key, _ID_PURPOSE, processes), len(ids))

    @classmethod
    def make_dummies(cls, count: int, key: bytes) -> Tags:
        """Return the tags of dummy ids, known to every key holder and held by no participant."""
        numbers = [number.to_bytes(8, "little") for number in range(count)]
        return cls._read([hash_texts(numbers, key, _DUMMY_PURPOSE)], count)

    @classmethod
    def _read(cls, blocks: Iterable[bytes], count: int) -> Tags:
        pairs, order = np.empty((count, 2), np.uint64), np.empty(count, np.uint64)
        end = 0
        for block in blocks:
            numbers = np.frombuffer(block, _AS_HASHED).reshape(-1, 3)
            start, end = end, end + len(numbers)
            pairs[start:end], order[start:end] = numbers[:, :2], numbers[:, 2]
        assert end == count
        return cls(pairs, order)
