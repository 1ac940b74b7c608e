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
from privet.config.members import DealerContact
from privet.experiments.local_federation import LocalFederation
from privet.federation.alignment import alignment as ids
from privet.federation.alignment import psi
from privet.federation.alignment.alignment import assist
from privet.federation.keeping import Answer, Offer, _told, receive_seeds
from privet.federation.monitoring.events import silent
from privet.federation.offline import _digests, _parsed
from privet.federation.prediction.export import Contribution, _join
from privet.federation.prediction.prediction import tell_classes
from privet.federation.session import public_constants as numbers_module
from privet.federation.session.agreement import (
    Holding,
    Purpose,
    Statement,
    agree_on_purpose,
    agree_on_rows,
)
from privet.federation.session.fingerprint import probe
from privet.federation.session.public_constants import Numbers, compare_numbers, numbers_of
from privet.federation.session.session import parse
from privet.runtime.accounting import Ledger
from privet.storage.model_part import load_part
from privet.transport.channel import Channel, pack
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
    own = Statement.of(job, command="train")
    purpose = Purpose("train", "ab" * 32, {"bank": own, "shop": own})
    files = {name: load_part(local.part(name)) for name in local.names}
    holdings = {
        name: Holding(
            samples=40,
            n_features=len(file.part.own_features),
            features=list(file.part.own_features),
            cuts=[7] * len(file.part.own_features),
            stages=[(1, "a")],
        )
        for name, file in files.items()
    }
    features = tuple(Feature(f.name, f.owner) for f in files["bank"].part.features)
    federation = job.federation(features, (7,) * len(features), None)
    digests = numbers_of(federation, 40)
    numbers = Numbers(digests=digests).model_dump_json().encode()
    offer = Offer(kept="a" * 32, new="b" * 32)
    work = json.dumps(_digests({"terms": job.terms()})).encode()

    def state(channel: Channel) -> object:
        return agree_on_purpose(channel, job, own)

    machine = probe()

    def hold(channel: Channel) -> object:
        # What our own machine computes is the same every time, and takes a while.
        with mock.patch.object(numbers_module, "probe", return_value=machine):
            return agree_on_rows(channel, job, purpose, holdings["shop"])

    def seeds(channel: Channel) -> object:
        return receive_seeds(channel, federation, 40)

    def written(stated: Statement | Holding | Offer | Answer) -> bytes:
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
            [written(holdings["bank"])], lambda c: parse(Holding, "bank", c), "bank", share=4
        ),
        "numbers": Reader(
            [numbers],
            of_message(lambda channel: compare_numbers(channel, digests), "shop", "bank"),
            "bank",
            share=3,
        ),
        "offers": Reader(
            [written(offer)],
            of_message(lambda channel: _told(channel, job.names, offer), "shop", "bank"),
            "bank",
            share=2,
        ),
        "answers": Reader(
            [written(Answer(have=["a" * 32]))],
            of_message(lambda channel: _told(channel, job.names, Answer(have=[])), "shop", "bank"),
            "bank",
            share=2,
        ),
        "seeds of masks": Reader([b"\x01" + bytes(32), b"\x00" + bytes(32)], read_seeds, "bank"),
        "what dealers deal ahead": Reader([work], _parsed, share=2),
    }


def _told_beside(local: LocalFederation, job: Job) -> dict[str, Reader]:
    file = load_part(local.part("shop"))
    contribution = Contribution.of(load_part(local.part("bank"))).model_dump_json().encode()
    leaves = np.zeros(file.part.leaf_shares.shape, dtype=np.uint32)
    away = job.model_copy(update={"recipient": "bank"})
    assert job.dealer is not None
    three = [DealerContact(**job.dealer.model_dump()) for _ in range(3)]
    aligned = job.model_copy(update={"align": True, "dealers": three, "dealer": None})
    purpose = Purpose("align", "ab" * 32, {n: Statement.of(job) for n in job.names})

    def names(channel: Channel) -> object:
        runtime = cast("Any", SimpleNamespace(ledger=Ledger()))
        return tell_classes(runtime, channel, away, file)

    def join(content: bytes) -> object:
        theirs = parse(Contribution, "bank", content)
        return _join(job, file, {"bank": theirs}, leaves)

    def help_align(channel: Channel) -> None:
        assist(channel, aligned, purpose, silent)

    def draw(channel: Channel) -> object:
        with mock.patch("privet.federation.alignment.psi.secrets.token_bytes", bytes):
            return psi.draw_key(channel, job)

    def same_ids(channel: Channel) -> None:
        # The dealer learns nothing of what is compared, only what it is told of it.
        with mock.patch.object(ids, "compare_ids", return_value=None):
            ids.refuse_other_ids(cast("Any", None), job.names, None, channel)

    return {
        "names of classes": Reader(
            [pack(["0", "1"])], of_message(names, "bank", "shop"), "shop", share=3
        ),
        "contributions": Reader([contribution], join, "bank", share=2),
        "parts of a key": Reader(
            [bytes(32)], of_message(draw, "shop", "bank", _check_of_key()), "bank", share=2
        ),
        "numbers of common rows": Reader(
            [b"100", b"40", b"123456789012"],
            of_message(help_align, aligned.dealer_names[1], aligned.aligner),
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
