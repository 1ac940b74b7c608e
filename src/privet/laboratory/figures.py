"""Figures by matplotlib, which may not be installed: the same content gives the same file."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Iterator
from typing import Any

from privet.errors import UnavailableError


def check_matplotlib() -> None:
    """Raise UnavailableError unless figures can be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UnavailableError(
            "matplotlib, which draws figures, is not installed: pip install 'privet[plot]'"
        )


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draw as all our figures are drawn."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "privet", "font.size": 9}):
        yield


def image_of(figure: Any, kind: str = "svg") -> bytes:
    """Return a figure as a file's content, `svg` or `png`."""
    file = io.BytesIO()
    figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else {})
    return file.getvalue()
