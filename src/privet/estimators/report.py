"""The report of a `fit`, its page in a notebook, and the progress line."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from pydantic import ConfigDict, Field

from privet.boosting.model import Model
from privet.boosting.summary import summarise_model
from privet.estimators.html import curve, model_in_html, section, table
from privet.federation.monitoring.report import ReportModel, Reveal
from privet.spec.params import Params


class FitReport(ReportModel):
    """What an estimator's training took, and what left the protocol in the clear.

    In the clear (`protocol="plain"`) there are no rounds, no bytes, and nothing to reveal.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    protocol: str
    params: Params
    seconds: float = 0.0
    rounds: int = 0
    bytes_sent: int = 0
    """Between the parties, all together."""
    bytes_from_dealer: int = 0
    reveals: list[Reveal] = Field(default_factory=list)
    losses: list[float] = Field(default_factory=list)
    """After each table, where they are known: of the training rows, in the clear."""
    model: Model | None = Field(default=None, exclude=True, repr=False)
    """The model, for its picture."""

    def _repr_html_(self) -> str:
        took = {"protocol": self.protocol, "seconds": f"{self.seconds:.2f}"}
        if self.rounds:
            took |= {
                "rounds": f"{self.rounds:,}",
                "MB between the parties": f"{self.bytes_sent / 1e6:,.2f}",
                "MB from the dealer": f"{self.bytes_from_dealer / 1e6:,.2f}",
            }
        parts = [
            section("Training", table((), took.items())),
            section("Parameters", table((), self.params.model_dump().items())),
        ]
        if self.reveals:
            rows = [(r.what, ", ".join(r.to), f"{r.count:,}") for r in self.reveals]
            parts.append(section("Revealed, to whom", table(("what", "to", "how many"), rows)))
        if len(self.losses) > 1:
            parts.append(section("Loss by table", curve(self.losses)))
        if self.model is not None:
            parts.append(model_in_html(summarise_model(self.model)))
        return f"<div>{''.join(parts)}</div>"


_WIDTH = 24


class ProgressBar:
    """A progress bar, called after every table.

    It redraws one line in a terminal or a notebook; elsewhere, such as in a file, it writes a line
    for every tenth of the tables.
    """

    def __init__(self, tables: int, stream: TextIO | None = None) -> None:
        self._tables = tables
        self._stream = sys.stderr if stream is None else stream
        # A notebook supports carriage returns like a terminal, but `isatty` returns False.
        self._redraws = self._stream.isatty() or "ipykernel" in sys.modules
        self._started = time.monotonic()
        self._drawn = 0

    def __call__(self, n_done: int, loss: float | None) -> None:
        """Show the number of trained tables, and the loss if known."""
        line = self.format_line(n_done, loss, time.monotonic() - self._started)
        if self._redraws:
            self._write(f"\r{line.ljust(self._drawn)}")
            self._drawn = len(line)
        elif (
            n_done == self._tables
            or 10 * n_done // self._tables > 10 * (n_done - 1) // self._tables
        ):
            self._write(f"{line}\n")

    def format_line(self, n_done: int, loss: float | None, seconds: float) -> str:
        """Return the text of the line."""
        filled = _WIDTH * n_done // self._tables
        left = seconds * (self._tables - n_done) / n_done
        parts = [f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {n_done}/{self._tables} tables"]
        if loss is not None:
            parts.append(f"loss {loss:.5f}")
        parts.append(f"{left:.0f} s left" if n_done < self._tables else f"{seconds:.0f} s")
        return ", ".join(parts)

    def close(self) -> None:
        """End the line."""
        if self._drawn:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
