"""What a running role has to say: in words for people, with fields for machines."""

from __future__ import annotations

import contextlib
import datetime
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from privet.errors import INTERRUPTED, PrivetError

_SOON, _SELDOM = 5.0, 60.0
"""Seconds after which a log is told that we still wait: the first time, and from then on."""
_MOST_REASONS = 100
"""A peer has a say in why we wait, and shall not fill our log."""


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    kind: str
    """waiting, connected, started, resumed, table, done, ..."""
    text: str
    """The same in words."""
    fields: dict[str, Any] = field(default_factory=dict)
    passing: bool = False
    """Whether it is soon said anew: of use to who watches, and no line of a log."""

    def line(self) -> dict[str, Any]:
        """Return it as a log for machines has it."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        return {"time": now, "event": self.kind, "text": self.text, **self.fields}


Tell = Callable[[Event], None]


class Teller:
    """Where events go: to somebody who shows them, and to whoever else listens for a while."""

    def __init__(self, show: Tell) -> None:
        self._show = show
        self._listeners: list[Tell] = []

    def __call__(self, event: Event) -> None:
        """Tell everybody, and show it last: what was shown has been heard."""
        for listen in self._listeners:
            listen(event)
        self._show(event)

    @contextlib.contextmanager
    def overheard(self, listen: Tell) -> Iterator[None]:
        """Let somebody listen."""
        self._listeners.append(listen)
        try:
            yield
        finally:
            self._listeners.remove(listen)


class Waiting:
    """Tells of waiting, which goes on for days: at once for whom and why, and then seldom.

    It is called every second. What is known already is passing.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._reasons: set[tuple[str, ...]] = set()
        self._due = 0.0

    def __call__(self, text: str, missing: Sequence[str]) -> None:
        """Tell of those who are missing; the text ends with for how long."""
        reason, now = (*missing, text.rpartition(" (")[0]), time.monotonic()
        is_new = reason not in self._reasons and len(self._reasons) < _MOST_REASONS
        passing = not is_new and now < self._due
        if not passing:
            self._reasons.add(reason)
            self._due = now + (_SOON if is_new else _SELDOM)
        self._tell(Event("waiting", text, {"missing": list(missing)}, passing))


def last_words(error: BaseException) -> Event:
    """Return how something ended that did not end well."""
    if isinstance(error, KeyboardInterrupt):
        return Event("interrupted", "interrupted", {"code": INTERRUPTED})
    if not isinstance(error, PrivetError):
        found = "".join(traceback.format_exception(error))
        text = f"a bug of ours, please report it: {error!r}"
        fields = {"code": PrivetError.exit_code, "error": type(error).__name__, "traceback": found}
        return Event("error", text, fields)
    fields = {
        "code": error.exit_code,
        "error": error.kind,
        "peer": error.peer,
        "step": error.step,
    }
    return Event("error", str(error), fields)


def silent(event: Event) -> None:
    """Tell nobody."""
