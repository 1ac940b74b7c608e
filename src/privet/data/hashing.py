"""Keyed hashes of many texts, in several processes where that pays.

The processes are not of `multiprocessing`, which forks a process with its threads, or starts one by
running the caller's script again.
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
from typing import IO

import numpy as np

from privet.errors import UnavailableError

HASH_BYTES = 24
_COMMAND = "from privet.data.hashing import serve; serve()"
_MOST_PROCESSES = 16


def cores() -> int:
    """Return how many processes can work at the same time."""
    try:
        found = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        found = os.cpu_count() or 1
    return min(found, _MOST_PROCESSES)


def hash_texts(texts: Iterable[bytes], key: bytes, kind: bytes) -> bytes:
    """Return the keyed hashes of texts of some kind, one behind the other."""
    start = hashlib.blake2b(digest_size=HASH_BYTES, key=key, person=kind)
    digests = []
    for text in texts:
        each = start.copy()  # which saves hashing the key again
        each.update(text)
        digests.append(each.digest())
    return b"".join(digests)


def hash_blocks(
    blocks: Iterable[Sequence[bytes]], key: bytes, kind: bytes, processes: int = 1
) -> Iterator[bytes]:
    """Yield the hashes of blocks of texts, in order."""
    if processes == 1:
        yield from (hash_texts(block, key, kind) for block in blocks)
        return
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()

    def work(block: Sequence[bytes]) -> bytes:
        worker = idle.get()
        try:
            return worker.hash(block)
        finally:
            idle.put(worker)

    with contextlib.ExitStack() as stack:
        for _ in range(processes):
            idle.put(stack.enter_context(contextlib.closing(_Worker(key, kind))))
        pool = stack.enter_context(ThreadPoolExecutor(processes))
        waiting: deque[Future[bytes]] = deque()
        for block in blocks:
            waiting.append(pool.submit(work, block))
            if len(waiting) > 2 * processes:  # not all at once, for memory's sake
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class _Worker:
    """A process that hashes: a block in, its hashes out."""

    def __init__(self, key: bytes, kind: bytes) -> None:
        path = os.pathsep.join(sys.path)
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # whoever interrupts us means us, and we end it
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._first = [key, kind]

    def hash(self, texts: Sequence[bytes]) -> bytes:
        """Return the hashes of texts."""
        try:
            if self._first:
                _write(self._stdin, self._first)
                self._first = []
            _write(self._stdin, texts)
            found = self._stdout.read(HASH_BYTES * len(texts))
        except OSError:
            found = b""
        if len(found) != HASH_BYTES * len(texts):
            raise UnavailableError(
                "a process that hashed ids was ended from outside: see whether memory ran out, "
                "and start again"
            )
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()  # it has nothing to lose
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.wait()


def serve() -> None:
    """Hash what comes on stdin, as a process of its own."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    first = _read(source)
    if first is None:
        return
    key, kind = first
    with contextlib.suppress(BrokenPipeError):
        while (texts := _read(source)) is not None:
            target.write(hash_texts(texts, key, kind))
            target.flush()


def _write(pipe: IO[bytes], texts: Sequence[bytes]) -> None:
    """Write how many texts there are, how long each is, and all of them."""
    lengths = np.fromiter(map(len, texts), np.uint64, len(texts))
    pipe.write(np.uint64(len(texts)).tobytes() + lengths.tobytes() + b"".join(texts))
    pipe.flush()


def _read(pipe: IO[bytes]) -> list[bytes] | None:
    """Return texts as they were written; None when there are no more."""
    count = int.from_bytes(pipe.read(8), "little")
    lengths = np.frombuffer(pipe.read(8 * count), np.uint64)
    if not count or len(lengths) != count:
        return None
    ends = np.cumsum(lengths)
    content = pipe.read(int(ends[-1]))
    starts = (ends - lengths).tolist()
    return [content[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]
