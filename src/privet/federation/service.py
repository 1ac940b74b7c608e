"""What the recipient says in a service, and the dealer's side of it."""

from __future__ import annotations

import re

import numpy as np

from privet.boosting.inference import answer, tell_unit
from privet.boosting.sharded_inference import hand_out_outcomes
from privet.errors import PeerMisbehavedError
from privet.federation.agreement import NOT_AGREED
from privet.federation.on_call import NOBODY, OnCall
from privet.files.job import Job
from privet.runtime.dealer import Dealer
from privet.terms.params import MOST_TABLES
from privet.transport.channel import Channel
from privet.transport.messages import receive

STOP = b"stop"
"""The recipient's last message."""
PREDICT, EXPLAIN = b"p", b"e"
"""How its messages about a batch begin."""
OFFER, SWITCH = b"m", b"n"
"""How those begin that ask the others for a newer model, and that have all predict with it."""


def wants_reasons(job: Job, message: bytes) -> bool:
    """Tell whether the recipient wants a batch explained; raise if the job does not have that."""
    recipient, how = job.names[job.recipient_index], message[:1]
    if how not in (PREDICT, EXPLAIN):
        raise PeerMisbehavedError(recipient, "asked for neither predictions nor the end")
    if how == EXPLAIN and job.explain is None:
        raise PeerMisbehavedError(recipient, NOT_AGREED)
    return how == EXPLAIN


class DealerOfService:
    """The program of the dealer, which learns how many rows a batch has, and if it is explained.

    Of a newer model it learns how many tables and features it has, as of the first one.
    """

    def __init__(
        self,
        job: Job,
        channel: Channel,
        n_features: int,
        tables: int,
        on_call: OnCall = NOBODY,
    ) -> None:
        self._job = job
        self._on_call = on_call
        self._channel = channel
        self._n_features = n_features
        self._tables = tables

    def __call__(self, runtime: Dealer, _: None) -> None:
        """Deal batch after batch."""
        recipient = self._job.names[self._job.recipient_index]
        tell_unit(runtime, self._job.query(0, self._tables), None)
        with runtime.step("serve"):
            while (message := receive(self._channel, recipient)) != STOP:
                self._on_call.look()
                if found := re.fullmatch(SWITCH + rb"([0-9]{1,6}),([0-9]{1,6})", message):
                    self._tables, self._n_features = int(found[1]), int(found[2])
                    if not 0 < self._tables <= MOST_TABLES:
                        problem = f"has a model of {self._tables} tables: there is none"
                        raise PeerMisbehavedError(recipient, problem)
                    tell_unit(runtime, self._job.query(0, self._tables), None)
                    continue
                if not re.fullmatch(rb"[pe][0-9]{1,7}", message):
                    raise PeerMisbehavedError(recipient, "asked for what is no number of rows")
                explain = wants_reasons(self._job, message)
                if rows := int(message[1:]):
                    features = self._n_features if explain else None
                    query = self._job.query(rows, self._tables, features)
                    crowd = self._on_call.crowd(rows)
                    if crowd is not None:
                        hand_out_outcomes(runtime, crowd, query.shape, None, None)
                    answer(runtime, query, self._job.names, None, None, None, crowd)
                    runtime.leave_for_good()
                self._channel.send(recipient, np.empty(0, dtype=np.uint8))
