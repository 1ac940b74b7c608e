"""Something like what a peer should have sent: changed, cut, doubled, or of other values."""

from __future__ import annotations

import json
import random
from typing import Any

_WORDS = [
    *(b"\xff" * 8, b"\x00" * 8, b"\x00", b"0" * 400, b"[" * 20, b'{"a":', b"NaN", b"1e999", b"-1"),
    *(b"null", b"true", b'""', b"[]", b"{}", b'"\\ud800"', b"9" * 20, b"9", b"Infinity", b"\n"),
]
_DEEP = b"[" * 200_000
"""More than any parser goes down."""
_ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 64, 65, 255, 2**31, 2**32, 2**63, 2**64, 10**30, 10**400),
    *(0.5, -0.0, 1e300, float("inf"), float("nan"), "", "a", "0", "-1", "\x00", "\ud800", "é" * 50),
    *([], {}, [[]], [0], [1, 2, 3, 4, 5], {"a": 1}, ["a"], "a" * 2000, [0] * 100, "ff", "bank"),
]


def damage(chance: random.Random, content: bytes) -> bytes:
    """Return other bytes than these: with a few places changed, or nothing like them at all."""
    draw = chance.random
    changed = bytearray(content)
    for _ in range(1 + int(5 * draw() * draw())):
        size = len(changed)
        place, what = int((size + 1) * draw()), int(100 * draw())
        if what < 35 and size:
            changed[place % size] ^= 1 << int(8 * draw())
        elif what < 50 and size:
            changed[place % size] = int(256 * draw())
        elif what < 62:
            del changed[place : place + 1 + int(40 * draw())]
        elif what < 72:
            changed[place:place] = changed[place : place + 1 + int(40 * draw())]
        elif what < 82:
            changed[place:place] = chance.randbytes(1 + int(20 * draw()))
        elif what < 97:
            changed[place:place] = _WORDS[int(len(_WORDS) * draw())]
        elif what < 99 or draw() < 0.95:
            changed = bytearray(chance.randbytes(int(200 * draw())))
        else:
            changed[place:place] = _DEEP
    return bytes(changed)


def damage_values(chance: random.Random, tree: Any) -> bytes:
    """Return what JSON is of other values than these: with a few of them changed, or gone."""
    for _ in range(1 + int(3 * chance.random() * chance.random())):
        tree = _changed(chance, tree)
    try:
        return json.dumps(tree).encode()
    except ValueError:  # a number of more digits than Python writes
        return b"[" + b"9" * 5000 + b"]"


def _changed(chance: random.Random, value: Any) -> Any:
    """Return a value with one change, somewhere inside it or of all of it."""
    draw = chance.random
    if isinstance(value, dict) and value and draw() < 0.95:
        keys = list(value)
        key, what, copied = keys[int(len(keys) * draw())], draw(), dict(value)
        if what < 0.8:
            copied[key] = _changed(chance, value[key])
        elif what < 0.9:
            del copied[key]
        else:
            copied[str(_odd(chance))[:40]] = _odd(chance)
        return copied
    if isinstance(value, list) and value and draw() < 0.9:
        at, what, items = int(len(value) * draw()), draw(), list(value)
        if what < 0.7:
            items[at] = _changed(chance, value[at])
        elif what < 0.85:
            del items[at]
        else:
            items.insert(at, _odd(chance))
        return items
    if isinstance(value, str) and value and draw() < 0.5:
        return damage(chance, value.encode(errors="replace")[:200]).decode(errors="replace")[:2000]
    if isinstance(value, int) and draw() < 0.5:
        return value + int(draw() * 21) - 10 if draw() < 0.5 else chance.getrandbits(64)
    return _odd(chance)


def _odd(chance: random.Random) -> Any:
    what = chance.random()
    if what < 0.2:
        return chance.getrandbits(1 + int(70 * chance.random()))
    if what < 0.3:
        return chance.random() * 10 ** int(20 * chance.random())
    if what < 0.4:
        return chance.randbytes(int(20 * chance.random())).hex()
    return _ODD[int(len(_ODD) * chance.random())]
