"""The start-up messages and the comparison of ids reveal no more than agreed."""

from __future__ import annotations

import contextlib
import threading
from functools import partial

import numpy as np
import pytest

from privet.arithmetic.rings import RingArray
from privet.config.job import Job
from privet.data.frame import Ids
from privet.errors import PeerError
from privet.federation.alignment.alignment import compare_ids_on_shares, digest_ids
from privet.federation.session.agreement import exchange_proposals, exchange_summaries
from privet.runtime.cost import count_program_cost
from privet.runtime.runtime import Runtime
from privet.transport.channel import Channel, receive_message
from privet.transport.memory import create_memory_channels
from tests.federation.harness import NAMES
from tests.federation.test_agreement import Statement, dealer_statement, job, statement
from tests.privacy.explain import check_inverse, explain
from tests.privacy.stage import Randomness, perform
from tests.runtime.harness import measured, play

__all__ = ["job"]  # a fixture


def program(runtime: Runtime, digest: RingArray | None) -> list[bool] | None:
    return compare_ids_on_shares(runtime, digest)


def numbers(*values: int) -> list[RingArray]:
    return [np.array(value, dtype=np.uint64) for value in values]


TOP = (1 << 47) - 1


@pytest.mark.parametrize(
    "digests",
    [(5, 5), (5, 6), (6, 5), (0, TOP), (TOP, 0), (TOP, TOP), (0, 0, 0), (7, 7, 8), (7, 8, 7, 9)],
)
def test_ids_match_if_digests_match(digests: tuple[int, ...]) -> None:
    views = play(program, len(digests), numbers(*digests))
    expected = [digest == digests[0] for digest in digests[1:]]
    for view in views:
        assert view.result == expected
        disclosures = [
            (entry.disclosure, len(entry.recipients), entry.n_elements)
            for entry in view.ledger.entries
        ]
        assert disclosures == [("whose ids are the same", len(digests), len(digests) - 1)]
    assert measured(views) == count_program_cost(program, len(digests), None)
    assert measured(views).rounds == 4


@pytest.mark.parametrize(("n", "honest"), [(n, honest) for n in (2, 3, 4) for honest in range(n)])
def test_other_ids_explain_the_view(n: int, honest: int) -> None:
    """The digest that differs can have any other value: not even the larger digest is revealed."""
    digests = [1000] * n
    digests[honest] = 1001
    session = perform(program, numbers(*digests), Randomness("ids"))
    for other in (999, 17, TOP):
        found = explain(session, honest, numbers(other)[0])
        check_inverse(session, found, honest)
    assert session.seen[0].result == [digests[k] == digests[0] for k in range(1, n)]


def test_digests_of_two_runs_do_not_match() -> None:
    """Nor do digests of ids in another order, or of the same characters split differently."""
    lists = [["x", "y"], ["y", "x"], ["xy", ""], ["", "xy"]]
    digests = {int(digest_ids(Ids.from_texts(ids), run)) for ids in lists for run in ("a", "b")}
    assert len(digests) == 8
    assert max(digests) <= TOP


def test_dealer_learns_no_feature_names(job: Job) -> None:
    """The dealer receives only the number of features."""
    channels = create_memory_channels([*NAMES, "dealer"])
    said = [statement(job, features=["salary"]), statement(job, features=["pension"])]

    def state(channel: Channel, stated: Statement) -> None:
        with contextlib.suppress(PeerError):  # the dealer does not go on
            exchange_summaries(channel, job, exchange_proposals(channel, job, stated[0]), stated[1])

    threads = [
        threading.Thread(target=partial(state, channels[name], stated), daemon=True)
        for name, stated in zip(NAMES, said, strict=True)
    ]
    for thread in threads:
        thread.start()
    exchange_proposals(channels["dealer"], job, dealer_statement(job)[0])
    for name in NAMES:
        message = receive_message(channels["dealer"], name)
        assert b'"n_features":1' in message
        assert b"salary" not in message
        assert b"pension" not in message
    channels["dealer"].abort()
    for thread in threads:
        thread.join(20)
