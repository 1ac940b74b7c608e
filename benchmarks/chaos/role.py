"""Commands as processes of their own that do not import everything anew.

A process that has imported what `privet train`, `privet predict` and `privet dealer` need, and has
done nothing else, is copied for each. From there on it is a process as if it had been started: it
reads its files, meets the others over TLS, and gets signals of its own. Importing takes longer than
all the rest of a small training, and a thousand interruptions mean many thousands of processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection, wait
from pathlib import Path

# What commands import when they are asked for is here in the process that is copied.
import privet.cli.app
import privet.cli.dealer
import privet.cli.federation  # noqa: F401
from benchmarks.processes import workers_of
from privet.__main__ import main
from privet.runtime.local.launcher import PROCESS_ENVIRONMENT, create_process_context

_STDOUT, _STDERR = 1, 2
_ONE_AT_A_TIME = threading.Lock()
"""A start looks after all processes that have ended. Of two threads that ask how one has ended, the
second is told that nobody knows."""


def _be(arguments: list[str], log: Connection) -> None:
    """Run a command of `privet`, whose log goes into a pipe."""
    os.dup2(log.fileno(), _STDERR)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), _STDOUT)
    # Those of the process that was copied may be anything: a test's capture, or nothing.
    sys.stdout, sys.stderr = (os.fdopen(k, "w", closefd=False) for k in (_STDOUT, _STDERR))
    sys.argv = ["privet", *arguments]
    main()


class Role:
    """One such process."""

    def __init__(self, arguments: list[str]) -> None:
        os.environ |= {
            name: os.environ.get(name, value) for name, value in PROCESS_ENVIRONMENT.items()
        }
        context = create_process_context(__name__)
        reader, writer = context.Pipe(duplex=False)
        self._process = context.Process(target=_be, args=(arguments, writer))
        with _ONE_AT_A_TIME:
            self._process.start()
        writer.close()
        self.log = os.fdopen(os.dup(reader.fileno()), encoding="utf-8")
        """What it says, line by line."""
        reader.close()

    @property
    def pid(self) -> int:
        """Its number."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def code(self) -> int | None:
        """What it returned, or the negative number of the signal that ended it."""
        with _ONE_AT_A_TIME:
            return self._process.exitcode

    def workers(self) -> list[int]:
        """Return the processes of its workers."""
        return workers_of(self.pid)

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def has_ended(self, seconds: float) -> bool:
        """Wait for its end."""
        wait([self._process.sentinel], seconds)
        return self.code is not None
