"""What a running role has to say: in words for people, with fields for machines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    kind: str
    """waiting, connected, started, resumed, table, done, ..."""
    text: str
    """The same in words."""
    fields: dict[str, Any] = field(default_factory=dict)


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


def silent(event: Event) -> None:
    """Tell nobody."""
