"""What participants and the dealer tell each other before the protocol starts."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import threading
from typing import Any

import numpy as np

from privet.errors import DisagreementError, PeerError
from privet.federation.agreement import Statement, agree
from privet.federation.messages import pack, receive
from privet.files.job import Job
from privet.transport.channel import Channel
from privet.transport.memory import memory_channels
from tests.federation.harness import NAMES
from tests.federation.test_agreement import agreeing, job, statement

__all__ = ["job"]  # a fixture


def test_nobody_gets_ids_to_search(job: Job) -> None:
    """Participants, who have the key, are sent no digest; the dealer, who is, has not the key."""
    channels = memory_channels([*NAMES, "dealer"])
    ids = np.array(["x", "y", "z"])
    sent: dict[tuple[str, str], list[bytes]] = {}
    for name, channel in channels.items():

        def send(
            peer: str, array: Any, tag: int = 0, me: str = name, inner: Any = channel.send
        ) -> None:
            sent.setdefault((me, peer), []).append(array.tobytes())
            inner(peer, array, tag)

        channel.send = send  # type: ignore[method-assign]
    stated = [statement(job), statement(job), Statement.of(job)]
    found = agreeing(job, *stated, channels=channels)
    assert not [error for error in found.values() if isinstance(error, Exception)]
    key = b"".join(bytes.fromhex(each.nonce) for each in stated[:2])
    digest = hmac.new(key, pack(ids.tolist()), hashlib.sha256).digest()
    receivers = {to for (_, to), messages in sent.items() if digest in b"".join(messages)}
    assert receivers == {"dealer"}
    for_dealer = b"".join(b"".join(sent[name, "dealer"]) for name in NAMES)
    for each in stated[:2]:
        assert each.nonce.encode() not in for_dealer
        assert bytes.fromhex(each.nonce) not in for_dealer


def test_the_key_for_ids_is_another_every_time(job: Job) -> None:
    """It is made of what participants draw, so digests of two sessions do not match either."""
    nonces = [statement(job).nonce for _ in range(4)]
    assert len(set(nonces)) == 4


def test_ids_that_differ_are_not_told(job: Job) -> None:
    """Participants learn that ids differ, and no digest to try ids on: in no writing."""
    channels = memory_channels([*NAMES, "dealer"])
    received: dict[str, list[bytes]] = {}
    digests: list[bytes] = []
    for name, channel in channels.items():

        def listen(
            peer: str, expected: Any, tag: int = 0, me: str = name, inner: Any = channel.receive
        ) -> Any:
            array = inner(peer, expected, tag)
            received.setdefault(me, []).append(array.tobytes())
            return array

        channel.receive = listen  # type: ignore[method-assign]
    stated = [statement(job), statement(job), Statement.of(job)]
    ids = {NAMES[0]: np.array(["x", "y", "z"]), NAMES[1]: np.array(["x", "y", "w"])}
    found = agreeing(job, *stated, channels=channels, ids=ids)
    assert all(isinstance(error, DisagreementError) for error in found.values())
    key = b"".join(bytes.fromhex(each.nonce) for each in stated[:2])
    for own in ids.values():
        digests.append(hmac.new(key, pack(own.tolist()), hashlib.sha256).digest())
    at_dealer = b"".join(received["dealer"])
    assert all(digest in at_dealer for digest in digests)
    for name in NAMES:
        told = b"".join(received[name])
        for digest in digests:
            writings = [digest, digest.hex().encode(), base64.b64encode(digest)]
            assert not [writing for writing in writings if writing[:12] in told]


def test_what_the_dealer_is_not_told(job: Job) -> None:
    """Neither names of features nor what the key for ids is made of."""
    channels = memory_channels([*NAMES, "dealer"])
    said = [statement(job, features=["salary"]), statement(job, features=["pension"])]

    def state(channel: Channel, stated: Statement) -> None:
        with contextlib.suppress(PeerError):  # the dealer does not go on
            agree(channel, job, stated, np.array(["x", "y", "z"]))

    for name, stated in zip(NAMES, said, strict=True):
        threading.Thread(target=state, args=(channels[name], stated), daemon=True).start()
    for name, stated in zip(NAMES, said, strict=True):
        told = receive(channels["dealer"], name)
        assert b"salary" not in told
        assert b"pension" not in told
        assert stated.nonce.encode() not in told
    channels["dealer"].abort()
