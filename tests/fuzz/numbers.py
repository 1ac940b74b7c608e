"""Readers of arrays whose elements mean something: lists of tags, marks, seeds, shares."""

from __future__ import annotations

import numpy as np

from privet.arithmetic.rings import BIT_RING, get_integer_ring
from privet.config.job import Job
from privet.data.frame import Ids
from privet.errors import CorrelationError, PeerMisbehavedError
from privet.federation.alignment.psi import (
    SortedTagList,
    _ReceivedTagList,
    count_entries,
    mark_common,
)
from privet.runtime.correlations.seeds import (
    REPLICATED_SEED_MESSAGE_BYTES,
    SEED_MESSAGE_BYTES,
    ReplicatedSeedMessage,
    SeedMessage,
    combine_replicated_seeds,
    draw_seeds,
)
from privet.runtime.correlations.source import check_participant_index
from privet.runtime.opening import Payload
from tests.fuzz.readers import Reader
from tests.fuzz.script import Scripted

_NONCE = bytes(range(32))
_DEALERS = ("dealer1", "dealer2", "dealer3")


def readers(job: Job) -> dict[str, Reader]:
    """Return them."""
    letter = Payload([get_integer_ring(b) for b in (36, 7, 64, 1)] + [BIT_RING], [5, 9, 2, 3, 1])
    sizes = zip(letter.rings, letter.lengths, strict=True)
    written = letter.encode([ring.zeros((length,)) for ring, length in sizes])
    starts, _ = draw_seeds([_NONCE, _NONCE])
    three = ReplicatedSeedMessage.for_participant("ab" * 16, 0, [_NONCE, _NONCE], _NONCE)
    key = bytes(32)
    ours = SortedTagList(Ids.from_texts(["a", "b", "c"]), key, np.empty(0, np.uint64))
    marks = np.packbits(np.ones(len(ours), dtype=np.bool_)).tobytes()
    # Two lists of the same tags, so that what one of them says is compared with something.
    entries = count_entries(2)
    tags = np.arange(1, entries + 1, dtype=np.uint64) << np.uint64(50)
    honest = [np.array([entries], dtype=np.uint64), tags]

    def start(content: bytes) -> object:
        found = SeedMessage.unpack(content)
        check_participant_index(found.participant_index, 0)
        return found.derive_checked_seed(_NONCE)

    def start_of_three(content: bytes) -> object:
        found = ReplicatedSeedMessage.unpack(content)
        check_participant_index(found.participant_index, 0)
        return combine_replicated_seeds([found, three, three], _NONCE, _DEALERS)

    def letters(content: bytes) -> object:
        return letter.decode(np.frombuffer(content, dtype=np.uint8))

    def marked(content: bytes) -> object:
        packed = np.frombuffer(content, dtype=np.uint8)
        flags = np.unpackbits(packed, count=len(ours)).astype(np.bool_)
        if problem := ours.explain_invalid_marks(flags):
            raise PeerMisbehavedError("dealer", problem)
        return ours.select_common_rows(flags)

    def lists(content: bytes) -> object:
        said = np.frombuffer(content, dtype=np.uint64)
        channel = Scripted("dealer", {"bank": [said[:1], said[1:]], "shop": honest})
        return mark_common([_ReceivedTagList(channel, name, None) for name in job.party_names])

    sent = np.array([entries, *tags], dtype=np.uint64).tobytes()
    correlations = (CorrelationError,)
    return {
        "starts": Reader([starts[0].pack()], start, "dealer", correlations, SEED_MESSAGE_BYTES),
        "starts of three": Reader(
            [three.pack()], start_of_three, "dealer", correlations, REPLICATED_SEED_MESSAGE_BYTES
        ),
        "letters": Reader([written.tobytes()], letters, size=letter.nbytes, share=2),
        "marks": Reader([marks], marked, "dealer", size=len(marks), share=2),
        "lists of tags": Reader([sent], lists, "bank", size=len(sent), share=2),
    }
