"""What a running role has to say: in words for people, with fields for machines."""

from __future__ import annotations

from collections.abc import Callable
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


def silent(event: Event) -> None:
    """Tell nobody."""
