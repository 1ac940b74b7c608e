"""A role as a process, whose log is read as it is written."""

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
    """One role at work."""

    def __init__(self, local: LocalFederation, name: str, verb: str, *options: str) -> None:
        self.name = name
        _, _, _, *arguments = local.make_command(name, verb, "--log-format=json", *options)
        self.process = Role(arguments)
        self.said: list[Said] = []
        self.stray: list[str] = []
        """What it said that is no event."""
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

    def has_said(self, wanted: Callable[[Said], bool], seconds: float) -> bool:
        """Wait until it has said something; return False if it ends or takes too long."""
        until, seen = time.monotonic() + seconds, 0
        with self._changed:
            while True:
                if any(map(wanted, self.said[seen:])):
                    return True
                seen = len(self.said)
                left = until - time.monotonic()
                if left <= 0 or not (self._reader.is_alive() or len(self.said) > seen):
                    return False
                self._changed.wait(min(left, 0.2))

    def has_ended(self, seconds: float) -> bool:
        """Wait until it has ended, and all that it said was read."""
        if not self.process.has_ended(max(0.01, seconds)):
            return False
        self._reader.join(5)
        return True

    @property
    def code(self) -> int | None:
        """What it returned."""
        return self.process.code

    @property
    def last(self) -> Said:
        """The last that it said."""
        return self.said[-1] if self.said else {"event": "nothing", "text": ""}

    def kill(self) -> None:
        """End it, if it has not."""
        self.process.send_signal(signal.SIGKILL)
        self.process.has_ended(5)
        self._reader.join(5)
        self.process.log.close()
