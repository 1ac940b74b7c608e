"""Readers of what members state and tell, before anything is computed or beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np

from privet.boosting.model import Feature
from privet.config.job import Job
from privet.config.members import DealerEntry
from privet.experiments.local_federation import LocalFederation
from privet.federation.alignment import alignment as ids
from privet.federation.alignment import psi
from privet.federation.alignment.alignment import assist_alignment
from privet.federation.keeping import Answer, Offer, _told, receive_seeds
from privet.federation.monitoring.events import discard_event
from privet.federation.offline import _digest_values, _parse_digests
from privet.federation.prediction.export import PartExport, _join
from privet.federation.prediction.prediction import reveal_class_names
from privet.federation.session import public_constants as numbers_module
from privet.federation.session.agreement import (
    DataSummary,
    Proposal,
    SessionPlan,
    exchange_proposals,
    exchange_summaries,
)
from privet.federation.session.fingerprint import run_self_test
from privet.federation.session.public_constants import (
    ConstantDigests,
    digest_public_constants,
    require_same_constants,
)
from privet.federation.session.session import parse_message
from privet.runtime.accounting import DisclosureLedger
from privet.storage.model_part import load_part
from privet.transport.channel import Channel, pack_texts
from tests.fuzz.readers import Reader
from tests.fuzz.script import Scripted, message

Read = Callable[[Channel], object]


def of_message(read: Read, us: str, liar: str, *then: bytes) -> Callable[[bytes], object]:
    """Return what reads a message of a liar, who is honest then."""
    rest = [array for content in then for array in message(content)]

    def read_message(content: bytes) -> object:
        return read(Scripted(us, {liar: [*message(content), *rest]}))

    return read_message


def readers(local: LocalFederation, job: Job) -> dict[str, Reader]:
    """Return them: what bank tells shop, who holds the label, if nothing else is said."""
    return {**_agreed(local, job), **_told_beside(local, job)}


def _agreed(local: LocalFederation, job: Job) -> dict[str, Reader]:
    own = Proposal.for_job(job, command="train")
    purpose = SessionPlan("train", "ab" * 32, {"bank": own, "shop": own})
    files = {name: load_part(local.get_part_path(name)) for name in local.party_names}
    holdings = {
        name: DataSummary(
            samples=40,
            n_features=len(file.part.local_features),
            features=list(file.part.local_features),
            cuts=[7] * len(file.part.local_features),
            stages=[(1, "a")],
        )
        for name, file in files.items()
    }
    features = tuple(Feature(f.name, f.owner) for f in files["bank"].part.features)
    federation = job.make_training_spec(features, (7,) * len(features), None)
    digests = digest_public_constants(federation, 40)
    numbers = ConstantDigests(digests=digests).model_dump_json().encode()
    offer = Offer(kept="a" * 32, new="b" * 32)
    work = json.dumps(_digest_values({"terms": job.list_agreed_settings()})).encode()

    def state(channel: Channel) -> object:
        return exchange_proposals(channel, job, own)

    machine = run_self_test()

    def hold(channel: Channel) -> object:
        # What our own machine computes is the same every time, and takes a while.
        with mock.patch.object(numbers_module, "run_self_test", return_value=machine):
            return exchange_summaries(channel, job, purpose, holdings["shop"])

    def seeds(channel: Channel) -> object:
        return receive_seeds(channel, federation, 40)

    def written(stated: Proposal | DataSummary | Offer | Answer) -> bytes:
        return stated.model_dump_json().encode()

    def read_seeds(content: bytes) -> object:
        script = {"bank": message(content), "shop": message(bytes(33))}
        return seeds(Scripted("dealer", script))

    return {
        "statements": Reader([written(own)], of_message(state, "shop", "bank"), "bank", share=4),
        "holdings": Reader(
            [written(holdings["bank"])], of_message(hold, "shop", "bank", numbers), "bank"
        ),
        "holdings, parsed": Reader(
            [written(holdings["bank"])],
            lambda c: parse_message(DataSummary, "bank", c),
            "bank",
            share=4,
        ),
        "numbers": Reader(
            [numbers],
            of_message(lambda channel: require_same_constants(channel, digests), "shop", "bank"),
            "bank",
            share=3,
        ),
        "offers": Reader(
            [written(offer)],
            of_message(lambda channel: _told(channel, job.party_names, offer), "shop", "bank"),
            "bank",
            share=2,
        ),
        "answers": Reader(
            [written(Answer(have=["a" * 32]))],
            of_message(
                lambda channel: _told(channel, job.party_names, Answer(have=[])), "shop", "bank"
            ),
            "bank",
            share=2,
        ),
        "seeds of masks": Reader([b"\x01" + bytes(32), b"\x00" + bytes(32)], read_seeds, "bank"),
        "what dealers deal ahead": Reader([work], _parse_digests, share=2),
    }


def _told_beside(local: LocalFederation, job: Job) -> dict[str, Reader]:
    file = load_part(local.get_part_path("shop"))
    contribution = (
        PartExport.from_part(load_part(local.get_part_path("bank"))).model_dump_json().encode()
    )
    leaves = np.zeros(file.part.leaf_shares.shape, dtype=np.uint32)
    away = job.model_copy(update={"recipient": "bank"})
    assert job.dealer is not None
    three = [DealerEntry(**job.dealer.model_dump()) for _ in range(3)]
    aligned = job.model_copy(update={"align": True, "dealers": three, "dealer": None})
    purpose = SessionPlan("align", "ab" * 32, {n: Proposal.for_job(job) for n in job.party_names})

    def names(channel: Channel) -> object:
        runtime = cast("Any", SimpleNamespace(ledger=DisclosureLedger()))
        return reveal_class_names(runtime, channel, away, file)

    def join(content: bytes) -> object:
        theirs = parse_message(PartExport, "bank", content)
        return _join(job, file, {"bank": theirs}, leaves)

    def help_align(channel: Channel) -> None:
        assist_alignment(channel, aligned, purpose, discard_event)

    def draw(channel: Channel) -> object:
        with mock.patch("privet.federation.alignment.psi.secrets.token_bytes", bytes):
            return psi.agree_on_key(channel, job)

    def same_ids(channel: Channel) -> None:
        # The dealer learns nothing of what is compared, only what it is told of it.
        with mock.patch.object(ids, "compare_ids_on_shares", return_value=None):
            ids.require_same_ids(cast("Any", None), job.party_names, None, channel)

    return {
        "names of classes": Reader(
            [pack_texts(["0", "1"])], of_message(names, "bank", "shop"), "shop", share=3
        ),
        "contributions": Reader([contribution], join, "bank", share=2),
        "parts of a key": Reader(
            [bytes(32)], of_message(draw, "shop", "bank", _check_of_key()), "bank", share=2
        ),
        "numbers of common rows": Reader(
            [b"100", b"40", b"123456789012"],
            of_message(help_align, aligned.dealer_names[1], aligned.aligning_dealer),
        ),
        "what is said of ids": Reader(
            [b"", b"the samples of bank are not those of shop"],
            of_message(same_ids, "dealer", "bank"),
        ),
    }


def _check_of_key() -> bytes:
    """Return what shop compares, if both participants draw zeros for the key."""
    size = psi.KEY_BYTES
    key = hashlib.blake2b(bytes(2 * size), digest_size=size, person=b"privet key").digest()
    return hashlib.blake2b(digest_size=size, key=key, person=b"privet check").digest()
