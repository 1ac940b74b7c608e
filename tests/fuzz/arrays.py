"""Readers of arrays with content: tag lists, marks, seeds, shares."""

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
from tests.fuzz.script import ScriptedChannel

_NONCE = bytes(range(32))
_DEALERS = ("dealer1", "dealer2", "dealer3")


def readers(job: Job) -> dict[str, Reader]:
    """Return the readers."""
    payload = Payload([get_integer_ring(b) for b in (36, 7, 64, 1)] + [BIT_RING], [5, 9, 2, 3, 1])
    sizes = zip(payload.rings, payload.lengths, strict=True)
    encoded = payload.encode([ring.zeros((length,)) for ring, length in sizes])
    seed_messages, _ = draw_seeds([_NONCE, _NONCE])
    replicated_message = ReplicatedSeedMessage.for_participant(
        "ab" * 16, 0, [_NONCE, _NONCE], _NONCE
    )
    key = bytes(32)
    local_list = SortedTagList(Ids.from_texts(["a", "b", "c"]), key, np.empty(0, np.uint64))
    marks = np.packbits(np.ones(len(local_list), dtype=np.bool_)).tobytes()
    # The other list has the same tags, so that tags are compared.
    entries = count_entries(2)
    tags = np.arange(1, entries + 1, dtype=np.uint64) << np.uint64(50)
    honest = [np.array([entries], dtype=np.uint64), tags]

    def read_seed_message(content: bytes) -> object:
        found = SeedMessage.unpack(content)
        check_participant_index(found.participant_index, 0)
        return found.derive_checked_seed(_NONCE)

    def read_replicated_message(content: bytes) -> object:
        found = ReplicatedSeedMessage.unpack(content)
        check_participant_index(found.participant_index, 0)
        return combine_replicated_seeds(
            [found, replicated_message, replicated_message], _NONCE, _DEALERS
        )

    def decode_payload(content: bytes) -> object:
        return payload.decode(np.frombuffer(content, dtype=np.uint8))

    def read_marks(content: bytes) -> object:
        packed = np.frombuffer(content, dtype=np.uint8)
        flags = np.unpackbits(packed, count=len(local_list)).astype(np.bool_)
        if problem := local_list.explain_invalid_marks(flags):
            raise PeerMisbehavedError("dealer", problem)
        return local_list.select_common_rows(flags)

    def read_lists(content: bytes) -> object:
        numbers = np.frombuffer(content, dtype=np.uint64)
        channel = ScriptedChannel("dealer", {"bank": [numbers[:1], numbers[1:]], "shop": honest})
        return mark_common([_ReceivedTagList(channel, name, None) for name in job.party_names])

    sent = np.array([entries, *tags], dtype=np.uint64).tobytes()
    correlations = (CorrelationError,)
    return {
        "starts": Reader(
            [seed_messages[0].pack()], read_seed_message, "dealer", correlations, SEED_MESSAGE_BYTES
        ),
        "starts of three": Reader(
            [replicated_message.pack()],
            read_replicated_message,
            "dealer",
            correlations,
            REPLICATED_SEED_MESSAGE_BYTES,
        ),
        "letters": Reader([encoded.tobytes()], decode_payload, size=payload.nbytes, share=2),
        "marks": Reader([marks], read_marks, "dealer", size=len(marks), share=2),
        "lists of tags": Reader([sent], read_lists, "bank", size=len(sent), share=2),
    }
