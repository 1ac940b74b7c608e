"""Readers of arrays whose elements mean something: lists of tags, marks, seeds, shares."""

from __future__ import annotations

import numpy as np

from privet.arithmetic.rings import BITS, integers_modulo
from privet.config.job import Job
from privet.data.frame import Ids
from privet.errors import CorrelationError, PeerMisbehavedError
from privet.federation.alignment.psi import TagList, _List, entries_of, mark_common
from privet.runtime.correlations.seeds import (
    START_BYTES,
    START_OF_THREE_BYTES,
    Start,
    StartOfThree,
    draw_seeds,
    seeds_of_three,
)
from privet.runtime.correlations.source import check_number
from privet.runtime.opening import Letter
from tests.fuzz.readers import Reader
from tests.fuzz.script import Scripted

_NONCE = bytes(range(32))
_DEALERS = ("dealer1", "dealer2", "dealer3")


def readers(job: Job) -> dict[str, Reader]:
    """Return them."""
    letter = Letter([integers_modulo(b) for b in (36, 7, 64, 1)] + [BITS], [5, 9, 2, 3, 1])
    sizes = zip(letter.rings, letter.lengths, strict=True)
    written = letter.write([ring.zeros((length,)) for ring, length in sizes])
    starts, _ = draw_seeds([_NONCE, _NONCE])
    three = StartOfThree.of("ab" * 16, 0, [_NONCE, _NONCE], _NONCE)
    key = bytes(32)
    ours = TagList(Ids.of(["a", "b", "c"]), key, np.empty(0, np.uint64))
    marks = np.packbits(np.ones(len(ours), dtype=np.bool_)).tobytes()
    # Two lists of the same tags, so that what one of them says is compared with something.
    entries = entries_of(2)
    tags = np.arange(1, entries + 1, dtype=np.uint64) << np.uint64(50)
    honest = [np.array([entries], dtype=np.uint64), tags]

    def start(content: bytes) -> object:
        found = Start.unpack(content)
        check_number(found.number, 0)
        return found.seed(_NONCE)

    def start_of_three(content: bytes) -> object:
        found = StartOfThree.unpack(content)
        check_number(found.number, 0)
        return seeds_of_three([found, three, three], _NONCE, _DEALERS)

    def letters(content: bytes) -> object:
        return letter.read(np.frombuffer(content, dtype=np.uint8))

    def marked(content: bytes) -> object:
        packed = np.frombuffer(content, dtype=np.uint8)
        flags = np.unpackbits(packed, count=len(ours)).astype(np.bool_)
        if problem := ours.problem(flags):
            raise PeerMisbehavedError("dealer", problem)
        return ours.common(flags)

    def lists(content: bytes) -> object:
        said = np.frombuffer(content, dtype=np.uint64)
        channel = Scripted("dealer", {"bank": [said[:1], said[1:]], "shop": honest})
        return mark_common([_List(channel, name, None) for name in job.names])

    sent = np.array([entries, *tags], dtype=np.uint64).tobytes()
    correlations = (CorrelationError,)
    return {
        "starts": Reader([starts[0].pack()], start, "dealer", correlations, START_BYTES),
        "starts of three": Reader(
            [three.pack()], start_of_three, "dealer", correlations, START_OF_THREE_BYTES
        ),
        "letters": Reader([written.tobytes()], letters, size=letter.nbytes, share=2),
        "marks": Reader([marks], marked, "dealer", size=len(marks), share=2),
        "lists of tags": Reader([sent], lists, "bank", size=len(sent), share=2),
    }
