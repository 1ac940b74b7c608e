"""How far a training is, as a line of text: for terminals, notebooks and logs."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 24


class ProgressBar:
    """Called after every table.

    A terminal and a notebook have one line, which is drawn again; elsewhere, as in a file, there is
    a line for every tenth of the tables.
    """

    def __init__(self, tables: int, stream: TextIO | None = None) -> None:
        self._tables = tables
        self._stream = sys.stderr if stream is None else stream
        # A notebook understands a carriage return as a terminal does, but does not say so.
        self._redraws = self._stream.isatty() or "ipykernel" in sys.modules
        self._started = time.monotonic()
        self._drawn = 0

    def __call__(self, done: int, loss: float | None) -> None:
        """Show that so many tables are done, and the loss where it is known."""
        line = self.line(done, loss, time.monotonic() - self._started)
        if self._redraws:
            self._write(f"\r{line.ljust(self._drawn)}")
            self._drawn = len(line)
        elif done == self._tables or 10 * done // self._tables > 10 * (done - 1) // self._tables:
            self._write(f"{line}\n")

    def line(self, done: int, loss: float | None, seconds: float) -> str:
        """Return what there is to say."""
        filled = _WIDTH * done // self._tables
        left = seconds * (self._tables - done) / done
        parts = [f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {done}/{self._tables} tables"]
        if loss is not None:
            parts.append(f"loss {loss:.5f}")
        parts.append(f"{left:.0f} s left" if done < self._tables else f"{seconds:.0f} s")
        return ", ".join(parts)

    def close(self) -> None:
        """End the line, so that what comes next has one of its own."""
        if self._drawn:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
