"""Commands as separate processes that a fork server starts without importing modules again.

The server has only imported the modules of `privet train`, `privet predict` and `privet dealer`. A
forked process behaves as a started one: it reads its files, connects over TLS, and receives its own
signals. Imports take longer than the rest of a small training run, and a thousand interruptions
need many thousands of processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection, wait
from pathlib import Path

# Modules that commands import lazily are imported in the fork server.
import privet.cli.app
import privet.cli.dealer
import privet.cli.federation  # noqa: F401
from benchmarks.processes import workers_of
from privet.__main__ import main
from privet.runtime.local.launcher import PROCESS_ENVIRONMENT, create_process_context

_STDOUT, _STDERR = 1, 2
_ONE_AT_A_TIME = threading.Lock()
"""Lock: a start reaps all ended processes, which breaks a concurrent query of an exit code."""


def _be(arguments: list[str], log: Connection) -> None:
    """Run a `privet` command with its log in a pipe."""
    os.dup2(log.fileno(), _STDERR)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), _STDOUT)
    # The fork server's streams can be anything, such as a test's capture.
    sys.stdout, sys.stderr = (os.fdopen(k, "w", closefd=False) for k in (_STDOUT, _STDERR))
    sys.argv = ["privet", *arguments]
    main()


class Role:
    """Process of one command."""

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
        """Lines of the log."""
        reader.close()

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Exit code, or the negative number of the signal that ended the process."""
        with _ONE_AT_A_TIME:
            return self._process.exitcode

    def workers(self) -> list[int]:
        """Return the process ids of its workers."""
        return workers_of(self.pid)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def has_ended(self, seconds: float) -> bool:
        """Wait for the end; return whether the process has ended."""
        wait([self._process.sentinel], seconds)
        return self.code is not None
