"""A role's process with its parsed log."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.chaos.role import Role
from privet.experiments.local_federation import LocalFederation

Said = dict[str, Any]


class Watched:
    """Running role with its log events."""

    def __init__(self, local: LocalFederation, name: str, verb: str, *options: str) -> None:
        self.name = name
        _, _, _, *arguments = local.make_command(name, verb, "--log-format=json", *options)
        self.process = Role(arguments)
        self.said: list[Said] = []
        self.stray: list[str] = []
        """Lines that are not events."""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.log:
            with self._changed:
                try:
                    self.said.append(json.loads(line))
                except ValueError:
                    self.stray.append(line.rstrip())
                self._changed.notify_all()

    def has_said(self, condition: Callable[[Said], bool], seconds: float) -> bool:
        """Wait for an event; return False if the process ends or the time is over."""
        deadline, seen = time.monotonic() + seconds, 0
        with self._changed:
            while True:
                if any(map(condition, self.said[seen:])):
                    return True
                seen = len(self.said)
                remaining = deadline - time.monotonic()
                if remaining <= 0 or not (self._reader.is_alive() or len(self.said) > seen):
                    return False
                self._changed.wait(min(remaining, 0.2))

    def has_ended(self, seconds: float) -> bool:
        """Wait until the process has ended and its log is read."""
        if not self.process.has_ended(max(0.01, seconds)):
            return False
        self._reader.join(5)
        return True

    @property
    def code(self) -> int | None:
        """Exit code."""
        return self.process.code

    @property
    def last(self) -> Said:
        """Last event."""
        return self.said[-1] if self.said else {"event": "nothing", "text": ""}

    def kill(self) -> None:
        """Kill the process, unless it has ended."""
        self.process.send_signal(signal.SIGKILL)
        self.process.has_ended(5)
        self._reader.join(5)
        self.process.log.close()
