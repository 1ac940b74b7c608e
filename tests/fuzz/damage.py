"""Mutations of a valid message: changed, truncated, duplicated, or with other values."""

from __future__ import annotations

import json
import random
from typing import Any

_FRAGMENTS = [
    *(b"\xff" * 8, b"\x00" * 8, b"\x00", b"0" * 400, b"[" * 20, b'{"a":', b"NaN", b"1e999", b"-1"),
    *(b"null", b"true", b'""', b"[]", b"{}", b'"\\ud800"', b"9" * 20, b"9", b"Infinity", b"\n"),
]
_DEEP = b"[" * 200_000
"""Nested deeper than any parser accepts."""
_ODD_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 64, 65, 255, 2**31, 2**32, 2**63, 2**64, 10**30, 10**400),
    *(0.5, -0.0, 1e300, float("inf"), float("nan"), "", "a", "0", "-1", "\x00", "\ud800", "é" * 50),
    *([], {}, [[]], [0], [1, 2, 3, 4, 5], {"a": 1}, ["a"], "a" * 2000, [0] * 100, "ff", "bank"),
]


def damage(chance: random.Random, content: bytes) -> bytes:
    """Return other bytes: with a few changes, or completely random."""
    draw = chance.random
    changed = bytearray(content)
    for _ in range(1 + int(5 * draw() * draw())):
        size = len(changed)
        start, kind = int((size + 1) * draw()), int(100 * draw())
        if kind < 35 and size:
            changed[start % size] ^= 1 << int(8 * draw())
        elif kind < 50 and size:
            changed[start % size] = int(256 * draw())
        elif kind < 62:
            del changed[start : start + 1 + int(40 * draw())]
        elif kind < 72:
            changed[start:start] = changed[start : start + 1 + int(40 * draw())]
        elif kind < 82:
            changed[start:start] = chance.randbytes(1 + int(20 * draw()))
        elif kind < 97:
            changed[start:start] = _FRAGMENTS[int(len(_FRAGMENTS) * draw())]
        elif kind < 99 or draw() < 0.95:
            changed = bytearray(chance.randbytes(int(200 * draw())))
        else:
            changed[start:start] = _DEEP
    return bytes(changed)


def damage_values(chance: random.Random, tree: Any) -> bytes:
    """Return JSON with a few values changed or removed."""
    for _ in range(1 + int(3 * chance.random() * chance.random())):
        tree = _changed(chance, tree)
    try:
        return json.dumps(tree).encode()
    except ValueError:  # a number with more digits than Python converts
        return b"[" + b"9" * 5000 + b"]"


def _changed(chance: random.Random, value: Any) -> Any:
    """Return a value with one change, inside it or of the whole value."""
    draw = chance.random
    if isinstance(value, dict) and value and draw() < 0.95:
        keys = list(value)
        key, kind, copied = keys[int(len(keys) * draw())], draw(), dict(value)
        if kind < 0.8:
            copied[key] = _changed(chance, value[key])
        elif kind < 0.9:
            del copied[key]
        else:
            copied[str(_odd_value(chance))[:40]] = _odd_value(chance)
        return copied
    if isinstance(value, list) and value and draw() < 0.9:
        at, kind, items = int(len(value) * draw()), draw(), list(value)
        if kind < 0.7:
            items[at] = _changed(chance, value[at])
        elif kind < 0.85:
            del items[at]
        else:
            items.insert(at, _odd_value(chance))
        return items
    if isinstance(value, str) and value and draw() < 0.5:
        return damage(chance, value.encode(errors="replace")[:200]).decode(errors="replace")[:2000]
    if isinstance(value, int) and draw() < 0.5:
        return value + int(draw() * 21) - 10 if draw() < 0.5 else chance.getrandbits(64)
    return _odd_value(chance)


def _odd_value(chance: random.Random) -> Any:
    kind = chance.random()
    if kind < 0.2:
        return chance.getrandbits(1 + int(70 * chance.random()))
    if kind < 0.3:
        return chance.random() * 10 ** int(20 * chance.random())
    if kind < 0.4:
        return chance.randbytes(int(20 * chance.random())).hex()
    return _ODD_VALUES[int(len(_ODD_VALUES) * chance.random())]
