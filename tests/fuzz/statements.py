"""Readers of the statements of members before and during a run."""

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
from tests.fuzz.script import ScriptedChannel, message

Read = Callable[[Channel], object]


def message_reader(
    read: Read, name: str, liar: str, *next_messages: bytes
) -> Callable[[bytes], object]:
    """Return a reader of one message of a liar, whose next messages are valid."""
    rest = [array for content in next_messages for array in message(content)]

    def read_message(content: bytes) -> object:
        return read(ScriptedChannel(name, {liar: [*message(content), *rest]}))

    return read_message


def readers(local: LocalFederation, job: Job) -> dict[str, Reader]:
    """Return the readers of messages, most of them of the bank at the shop, the label holder."""
    return {**_agreement_messages(local, job), **_other_messages(local, job)}


def _agreement_messages(local: LocalFederation, job: Job) -> dict[str, Reader]:
    proposal = Proposal.for_job(job, command="train")
    plan = SessionPlan("train", "ab" * 32, {"bank": proposal, "shop": proposal})
    files = {name: load_part(local.get_part_path(name)) for name in local.party_names}
    summaries = {
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
    settings_digests = json.dumps(_digest_values({"terms": job.list_agreed_settings()})).encode()

    def read_proposal(channel: Channel) -> object:
        return exchange_proposals(channel, job, proposal)

    machine = run_self_test()

    def read_summaries(channel: Channel) -> object:
        # The self-test of this machine is slow, and its result does not change.
        with mock.patch.object(numbers_module, "run_self_test", return_value=machine):
            return exchange_summaries(channel, job, plan, summaries["shop"])

    def seeds(channel: Channel) -> object:
        return receive_seeds(channel, federation, 40)

    def to_json(stated: Proposal | DataSummary | Offer | Answer) -> bytes:
        return stated.model_dump_json().encode()

    def read_seeds(content: bytes) -> object:
        script = {"bank": message(content), "shop": message(bytes(33))}
        return seeds(ScriptedChannel("dealer", script))

    return {
        "statements": Reader(
            [to_json(proposal)], message_reader(read_proposal, "shop", "bank"), "bank", share=4
        ),
        "holdings": Reader(
            [to_json(summaries["bank"])],
            message_reader(read_summaries, "shop", "bank", numbers),
            "bank",
        ),
        "holdings, parsed": Reader(
            [to_json(summaries["bank"])],
            lambda c: parse_message(DataSummary, "bank", c),
            "bank",
            share=4,
        ),
        "numbers": Reader(
            [numbers],
            message_reader(
                lambda channel: require_same_constants(channel, digests), "shop", "bank"
            ),
            "bank",
            share=3,
        ),
        "offers": Reader(
            [to_json(offer)],
            message_reader(lambda channel: _told(channel, job.party_names, offer), "shop", "bank"),
            "bank",
            share=2,
        ),
        "answers": Reader(
            [to_json(Answer(have=["a" * 32]))],
            message_reader(
                lambda channel: _told(channel, job.party_names, Answer(have=[])), "shop", "bank"
            ),
            "bank",
            share=2,
        ),
        "seeds of masks": Reader([b"\x01" + bytes(32), b"\x00" + bytes(32)], read_seeds, "bank"),
        "what dealers deal ahead": Reader([settings_digests], _parse_digests, share=2),
    }


def _other_messages(local: LocalFederation, job: Job) -> dict[str, Reader]:
    file = load_part(local.get_part_path("shop"))
    export = PartExport.from_part(load_part(local.get_part_path("bank"))).model_dump_json().encode()
    leaves = np.zeros(file.part.leaf_shares.shape, dtype=np.uint32)
    other_recipient = job.model_copy(update={"recipient": "bank"})
    assert job.dealer is not None
    three = [DealerEntry(**job.dealer.model_dump()) for _ in range(3)]
    aligned = job.model_copy(update={"align": True, "dealers": three, "dealer": None})
    plan = SessionPlan("align", "ab" * 32, {n: Proposal.for_job(job) for n in job.party_names})

    def read_class_names(channel: Channel) -> object:
        runtime = cast("Any", SimpleNamespace(ledger=DisclosureLedger()))
        return reveal_class_names(runtime, channel, other_recipient, file)

    def read_export(content: bytes) -> object:
        other = parse_message(PartExport, "bank", content)
        return _join(job, file, {"bank": other}, leaves)

    def read_row_count(channel: Channel) -> None:
        assist_alignment(channel, aligned, plan, discard_event)

    def read_key_part(channel: Channel) -> object:
        with mock.patch("privet.federation.alignment.psi.secrets.token_bytes", bytes):
            return psi.agree_on_key(channel, job)

    def read_id_check(channel: Channel) -> None:
        # The dealer takes no part in the comparison, and only reads the reported result.
        with mock.patch.object(ids, "compare_ids_on_shares", return_value=None):
            ids.require_same_ids(cast("Any", None), job.party_names, None, channel)

    return {
        "names of classes": Reader(
            [pack_texts(["0", "1"])],
            message_reader(read_class_names, "bank", "shop"),
            "shop",
            share=3,
        ),
        "contributions": Reader([export], read_export, "bank", share=2),
        "parts of a key": Reader(
            [bytes(32)],
            message_reader(read_key_part, "shop", "bank", _make_key_check()),
            "bank",
            share=2,
        ),
        "numbers of common rows": Reader(
            [b"100", b"40", b"123456789012"],
            message_reader(read_row_count, aligned.dealer_names[1], aligned.aligning_dealer),
        ),
        "what is said of ids": Reader(
            [b"", b"the samples of bank are not those of shop"],
            message_reader(read_id_check, "dealer", "bank"),
        ),
    }


def _make_key_check() -> bytes:
    """Return the key check that shop expects if both participants draw zeros."""
    size = psi.KEY_BYTES
    key = hashlib.blake2b(bytes(2 * size), digest_size=size, person=b"privet key").digest()
    return hashlib.blake2b(digest_size=size, key=key, person=b"privet check").digest()
