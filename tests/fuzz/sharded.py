"""Readers of what heads tell each other of their workers, and heads and workers each other."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from privet.arithmetic.rings import Z32, Z64
from privet.arithmetic.shares import Elements
from privet.boosting.model import Feature
from privet.config.job import Job
from privet.experiments.local_federation import LocalFederation
from privet.federation.cluster.pool import _exchange_addresses
from privet.federation.cluster.worker import (
    WorkerAddress,
    WorkerConfig,
    encode_label_unit,
    receive_row_numbers,
)
from privet.federation.session.agreement import Agreement
from privet.federation.session.session import parse_message
from privet.runtime.accounting import Meter, Traffic
from privet.runtime.run import COORDINATOR_NAME
from privet.runtime.workers import CommandLoop, WorkerHandle
from privet.storage.model_part import load_part
from privet.transport.channel import Array, Channel
from tests.fuzz.readers import Reader
from tests.fuzz.script import Scripted, message
from tests.fuzz.stated import of_message

_WORKER = "worker1"
_DONE, _FAILED = (np.array([status, 0, 0, 0, 0], dtype=np.uint64) for status in (0, 1))
_MOST_SAMPLES = 1 << 24
_DUE = [Elements.unknown((2, 3), Z64), Elements.unknown((4,), Z32)]


def readers(local: LocalFederation, job: Job) -> dict[str, Reader]:
    """Return them, for a job of two shards."""
    job = Job.parse({**job.model_dump(), "shards": 2})
    places = [WorkerAddress(host="localhost", port=port, fingerprint="ab" * 32) for port in (5, 6)]
    stated = json.dumps([place.model_dump() for place in places]).encode()
    seat = cast("Any", SimpleNamespace(job=job, name="shop"))

    def swap(content: bytes) -> object:
        said = {"bank": message(content), "dealer": message(stated)}
        return _exchange_addresses(Scripted("shop", said), seat, places)

    def rows(content: bytes) -> object:
        count = np.frombuffer(content[:8], dtype=np.uint64)
        return receive_row_numbers(
            Scripted(_WORKER, {COORDINATOR_NAME: [count]}), COORDINATOR_NAME, 40
        )

    brief = _brief(local, job, places).model_dump_json().encode()
    return {
        "places of workers": Reader([stated], swap, "bank", share=3),
        "place of a worker": Reader(
            [places[0].model_dump_json().encode()],
            lambda content: parse_message(WorkerAddress, _WORKER, content),
            _WORKER,
        ),
        "briefs": Reader([brief], _read_brief),
        "numbers of rows": Reader([np.uint64(40).tobytes()], rows, COORDINATOR_NAME, size=8),
        **_of_orders(),
    }


def _brief(local: LocalFederation, job: Job, places: list[WorkerAddress]) -> WorkerConfig:
    part = load_part(local.get_part_path("shop")).part
    agreement = Agreement(
        command="train",
        run="ab" * 32,
        n_samples=40,
        features=tuple(Feature(f.name, f.owner) for f in part.features),
        cut_counts=(7,) * len(part.features),
        monotone=None,
        resume_from=(0, ""),
        is_finished=False,
        n_model_tables=1,
        randomness_ids={},
    )
    group = dict(zip(("bank", "shop"), places, strict=True))
    return WorkerConfig.for_member(
        job, agreement, "shop", group=group, session="ab" * 32, **encode_label_unit(part.label_unit)
    )


def _read_brief(content: bytes) -> object:
    """Read what a worker reads of its brief before it meets anybody."""
    brief = parse_message(WorkerConfig, COORDINATOR_NAME, content)
    # To plan for many rows takes memory by their number, as the rows themselves do.
    plan = brief.make_training_plan() if brief.samples < _MOST_SAMPLES else None
    return brief.make_members(), bytes.fromhex(brief.session), plan, brief.make_label_unit()


def _of_orders() -> dict[str, Reader]:
    shares = [[64, [2, 3], True], [36, [4], True], [1, [2], False]]
    order = {"order": "sums", "numbers": [1, 2], "shares": shares}
    meter = Meter()
    meter.online["table 1"] = Traffic(1, 2, 3, 4)
    reason = {
        "kind": "PeerLostError",
        "peer": "bank",
        "problem": "has gone",
        "step": "table 1",
        "doubt": 4,
    }

    def head(*said: Array) -> WorkerHandle:
        return WorkerHandle(Scripted(COORDINATOR_NAME, {_WORKER: said}), _WORKER, 0)

    def next_order(channel: Channel) -> object:
        return CommandLoop(channel, COORDINATOR_NAME).receive_command()

    def answered(content: bytes) -> object:
        status = np.frombuffer(content[:40], dtype=np.uint64)
        shares = np.frombuffer(content[40:88], dtype=np.uint64)
        more = np.frombuffer(content[88:], dtype=np.uint32)
        return head(status, shares, more).receive_response(_DUE)

    def failed(content: bytes) -> object:
        return head(_FAILED, *message(content)).receive_response([])

    def noticed(content: bytes) -> object:
        found = head(*message(content)).poll_failure()
        assert found is not None
        raise found

    sample = json.dumps(reason).encode()
    return {
        "orders": Reader(
            [json.dumps(order).encode()],
            of_message(next_order, _WORKER, COORDINATOR_NAME),
            COORDINATOR_NAME,
            share=4,
        ),
        "answers of workers": Reader([bytes(104)], answered, size=104),
        "meters": Reader(
            [json.dumps({**meter.to_dict(), "peak_rss_mb": 123.4}).encode()],
            lambda content: head(_DONE, *message(content)).receive_meter(),
            _WORKER,
            share=2,
        ),
        "failures of workers": Reader([sample], failed, share=2),
        "failures that are noticed": Reader([sample], noticed, share=2),
    }
