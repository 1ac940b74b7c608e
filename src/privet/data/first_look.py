"""A first look at a table that nobody has described yet: which columns may be its ids and label."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LABELS = ("label", "target", "class", "outcome", "y")


def likely_id(names: Sequence[str]) -> str | None:
    """Return the column that seems to say which sample a row is: `id`, or the only one like it."""
    exact = [name for name in names if name.strip().casefold() == "id"]
    alike = [name for name in names if re.search(r"(^|[ _.-])id$", name.strip(), re.IGNORECASE)]
    return next((found[0] for found in (exact, alike) if len(found) == 1), None)


def likely_label(names: Sequence[str]) -> str | None:
    """Return the column that seems to be the label, if there is one and no other."""
    found = [name for name in names if name.strip().casefold() in _LABELS]
    return found[0] if len(found) == 1 else None
