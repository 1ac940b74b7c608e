"""Readers of the messages between members of a service."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np

from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.experiments.local_federation import LocalFederation
from privet.federation.cluster.pool import NO_POOL
from privet.federation.serving import service
from privet.federation.serving.model import ServedModel
from privet.federation.serving.request_queue import PredictionRequest, RequestQueue
from privet.federation.serving.service import (
    AlignedService,
    DealerService,
    PredictionService,
    UnalignedService,
)
from privet.storage.model_part import load_part
from privet.transport.channel import Channel, pack_texts
from tests.fuzz.readers import Reader
from tests.fuzz.script import ScriptedChannel
from tests.fuzz.statements import message_reader

_IDS = ["1-0", "1-7"]


def readers(local: LocalFederation, job: Job) -> dict[str, Reader]:
    """Return the readers of requests of the shop, the recipient, to the bank and the dealer."""
    explained = Job.parse({**job.model_dump(), "explain": "feature"})
    models = {name: _model(local, job, name) for name in local.party_names}

    def read_request(kind: type[PredictionService], job: Job) -> Callable[[Channel], object]:
        def read(channel: Channel) -> object:
            bank = kind(models["bank"], job, channel, lambda: models["bank"], None)
            cast("Any", bank)._predict = _nothing
            cast("Any", bank)._switch_model = _nothing
            return bank._answer_message()

        return read

    runtime = cast(
        "Any",
        SimpleNamespace(step=lambda _: contextlib.nullcontext(), forget_finished_draws=_nothing),
    )

    def read_dealer_request(channel: Channel) -> object:
        with mock.patch.multiple(service, reveal_label_unit=_nothing, answer_query=_nothing):
            return DealerService(explained, channel, 5, 1, NO_POOL)(runtime, None)

    name = models["bank"].model_id.encode()
    others = [b"stop", b"m" + name, b"n" + name, b"m", b"e", b"p"]
    positions = np.array([1, 2, 39], dtype="<u4").tobytes()
    by_ids, by_positions = [b"p" + pack_texts(_IDS), *others], [b"p" + positions, *others]
    return {
        "requests by ids": Reader(
            by_ids,
            message_reader(read_request(UnalignedService, job), "bank", "shop"),
            "shop",
            share=2,
        ),
        "requests to explain": Reader(
            [b"e" + pack_texts(_IDS), *by_ids],
            message_reader(read_request(UnalignedService, explained), "bank", "shop"),
            "shop",
        ),
        "requests by positions": Reader(
            by_positions,
            message_reader(read_request(AlignedService, job), "bank", "shop"),
            "shop",
            share=2,
        ),
        "requests to the dealer": Reader(
            [b"p2", b"e7", b"p0", b"n1,5", b"p9999999", b"stop"],
            message_reader(read_dealer_request, "dealer", "shop", b"stop"),
            "shop",
        ),
        "ids that somebody has": Reader(
            [b"\x01\x01\x01\x00"], lambda c: _read_known_ids(models["shop"], job, c), size=4
        ),
    }


def _model(local: LocalFederation, job: Job, name: str) -> ServedModel:
    party = PartyConfig.load(local.folder / name / "party.toml")
    file = load_part(local.get_part_path(name))
    table = local.folder / name / "train.csv"
    return ServedModel(file, party.read_new_rows(job, file.encoders, table))


def _nothing(*_: object) -> None:
    """Replace the computation, which these readers do not need."""


def _read_known_ids(model: ServedModel, job: Job, content: bytes) -> object:
    """Read, as the recipient, which of four ids the bank reports as known."""
    flags = np.frombuffer(content, dtype=np.uint8)
    channel = ScriptedChannel("shop", {"bank": [flags], "dealer": []})
    queue = RequestQueue()
    queue.set_available(["bank", "dealer"])
    queue.submit(PredictionRequest([*_IDS, "1-3", "moon"]))
    shop = UnalignedService(model, job, channel, lambda: model, queue)
    cast("Any", shop)._predict = lambda columns, _: np.zeros(columns.shape[1])
    cast("Any", shop)._classes = ("0", "1")
    cast("Any", shop)._runtime = SimpleNamespace(meter=mock.MagicMock())
    cast("Any", shop)._complete_requests = _nothing
    return shop._run_batch()
