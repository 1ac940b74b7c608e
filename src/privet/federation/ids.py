"""Whether all participants have the same samples in the same order, and nothing more.

Each shares a digest of its ids, under a key that is new in every run. On shares, every digest is
compared with the first participant's, and what is revealed is whether they are equal. So nobody is
shown a digest to try ids on, the dealer included.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privet.arithmetic.rings import RingArray, integers_modulo
from privet.arithmetic.shares import stack
from privet.config import quoted
from privet.data.ids import Ids
from privet.errors import DisagreementError
from privet.files.job import Job
from privet.gates.masked import combine, mask
from privet.gates.threshold import count_reached
from privet.runtime.counter import Cost, Counter
from privet.runtime.runtime import Runtime
from privet.transport.channel import Channel
from privet.transport.messages import receive, send

_DIGEST_BITS = 47
"""Two different lists have the same digest with probability 2^-47, in one run and not the next."""
_RING = integers_modulo(_DIGEST_BITS + 1)  # differences have a sign


def digest_of(ids: Ids, run: str) -> RingArray:
    """Return what a participant shares: a digest of its ids, in order, under a run's name."""
    content = ids.digest(run.encode())
    number = int.from_bytes(content[:8], "little") >> (64 - _DIGEST_BITS)
    return np.array(number, dtype=_RING.dtype)


def compare_ids(runtime: Runtime, digest: RingArray | None) -> list[bool] | None:
    """Tell participants who, of all but the first, has the first one's ids; None to the dealer.

    1. Every participant shares its digest.
    2. d_j - d_1 and d_1 - d_j are compared with zero, which both reach if the two are equal.

    Reveals: to all, how many of the two reach zero: two or one.
    """
    everybody = list(range(runtime.n_parties))
    with runtime.step("ids"):
        own = [digest if k == runtime.index else None for k in everybody]
        digests = runtime.share_each(own, everybody, (), _RING)
        (apart,) = mask(runtime, digests[1:] - digests[:1])
        both = combine(stack, apart, apart.map(lambda x: -x))
        reached = count_reached(runtime, both, thresholds=(0,), width=_RING.bits)
        revealed = runtime.reveal(reached.sum(axis=0), everybody, "whose ids are the same")
    return None if revealed is None else [count == 2 for count in revealed.tolist()]


def cost_of_comparing(job: Job) -> Cost:
    """Return what a training's participants do to compare ids: nothing, if rows were aligned."""
    counter = Counter(len(job.names), dealers=len(job.dealer_names))
    if not job.align:
        compare_ids(counter, None)
    return counter.total


def refuse_other_ids(
    runtime: Runtime, names: Sequence[str], digest: RingArray | None, channel: Channel | None
) -> None:
    """Raise DisagreementError, at everybody, unless all participants have the same ids.

    Dealers, who cannot see it, are told by the first participant; one that deals ahead, and
    whoever counts, has no channel to be told by.
    """
    same = compare_ids(runtime, digest)
    if channel is None:
        return
    if same is None:
        told = quoted(receive(channel, names[0]).decode(errors="replace"), 300)
    else:
        others = [name for name, alike in zip(names[1:], same, strict=True) if not alike]
        told = f"the samples of {names[0]} are not those of {' or of '.join(others)}"
        told = told if others else ""
        if channel.name == names[0]:
            send(channel, [peer for peer in channel.peers if peer not in names], told.encode())
    if told:
        # Everybody finds it now, and says goodbye: nobody just hangs up.
        channel.leave()
        raise DisagreementError(
            f"ids: {told}, or in another order: sort all tables by id, and keep the ids that all "
            "have"
        )
