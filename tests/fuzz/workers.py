"""Readers of messages between coordinators, and between a coordinator and its workers."""

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
from tests.fuzz.script import ScriptedChannel, message
from tests.fuzz.statements import message_reader

_WORKER = "worker1"
_DONE, _FAILED = (np.array([status, 0, 0, 0, 0], dtype=np.uint64) for status in (0, 1))
_MAX_PLANNED_SAMPLES = 1 << 24
_EXPECTED = [Elements.unknown((2, 3), Z64), Elements.unknown((4,), Z32)]


def readers(local: LocalFederation, job: Job) -> dict[str, Reader]:
    """Return the readers, for a job of two shards."""
    job = Job.parse({**job.model_dump(), "shards": 2})
    addresses = [
        WorkerAddress(host="localhost", port=port, fingerprint="ab" * 32) for port in (5, 6)
    ]
    encoded = json.dumps([address.model_dump() for address in addresses]).encode()
    member = cast("Any", SimpleNamespace(job=job, name="shop"))

    def exchange(content: bytes) -> object:
        script = {"bank": message(content), "dealer": message(encoded)}
        return _exchange_addresses(ScriptedChannel("shop", script), member, addresses)

    def read_row_numbers(content: bytes) -> object:
        count = np.frombuffer(content[:8], dtype=np.uint64)
        return receive_row_numbers(
            ScriptedChannel(_WORKER, {COORDINATOR_NAME: [count]}), COORDINATOR_NAME, 40
        )

    config = _make_config(local, job, addresses).model_dump_json().encode()
    return {
        "places of workers": Reader([encoded], exchange, "bank", share=3),
        "place of a worker": Reader(
            [addresses[0].model_dump_json().encode()],
            lambda content: parse_message(WorkerAddress, _WORKER, content),
            _WORKER,
        ),
        "briefs": Reader([config], _read_config),
        "numbers of rows": Reader(
            [np.uint64(40).tobytes()], read_row_numbers, COORDINATOR_NAME, size=8
        ),
        **_command_messages(),
    }


def _make_config(local: LocalFederation, job: Job, addresses: list[WorkerAddress]) -> WorkerConfig:
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
    group = dict(zip(("bank", "shop"), addresses, strict=True))
    return WorkerConfig.for_member(
        job, agreement, "shop", group=group, session="ab" * 32, **encode_label_unit(part.label_unit)
    )


def _read_config(content: bytes) -> object:
    """Read a worker configuration as a worker does before it connects to peers."""
    config = parse_message(WorkerConfig, COORDINATOR_NAME, content)
    # The memory of a plan grows with the number of rows.
    plan = config.make_training_plan() if config.samples < _MAX_PLANNED_SAMPLES else None
    return config.make_members(), bytes.fromhex(config.session), plan, config.make_label_unit()


def _command_messages() -> dict[str, Reader]:
    shares = [[64, [2, 3], True], [36, [4], True], [1, [2], False]]
    command = {"order": "sums", "numbers": [1, 2], "shares": shares}
    meter = Meter()
    meter.online["table 1"] = Traffic(1, 2, 3, 4)
    reason = {
        "kind": "PeerLostError",
        "peer": "bank",
        "problem": "has gone",
        "step": "table 1",
        "doubt": 4,
    }

    def make_handle(*arrays: Array) -> WorkerHandle:
        return WorkerHandle(ScriptedChannel(COORDINATOR_NAME, {_WORKER: arrays}), _WORKER, 0)

    def read_command(channel: Channel) -> object:
        return CommandLoop(channel, COORDINATOR_NAME).receive_command()

    def read_response(content: bytes) -> object:
        status = np.frombuffer(content[:40], dtype=np.uint64)
        shares = np.frombuffer(content[40:88], dtype=np.uint64)
        more = np.frombuffer(content[88:], dtype=np.uint32)
        return make_handle(status, shares, more).receive_response(_EXPECTED)

    def read_failure(content: bytes) -> object:
        return make_handle(_FAILED, *message(content)).receive_response([])

    def poll_failure(content: bytes) -> object:
        found = make_handle(*message(content)).poll_failure()
        assert found is not None
        raise found

    sample = json.dumps(reason).encode()
    return {
        "orders": Reader(
            [json.dumps(command).encode()],
            message_reader(read_command, _WORKER, COORDINATOR_NAME),
            COORDINATOR_NAME,
            share=4,
        ),
        "answers of workers": Reader([bytes(104)], read_response, size=104),
        "meters": Reader(
            [json.dumps({**meter.to_dict(), "peak_rss_mb": 123.4}).encode()],
            lambda content: make_handle(_DONE, *message(content)).receive_meter(),
            _WORKER,
            share=2,
        ),
        "failures of workers": Reader([sample], read_failure, share=2),
        "failures that are noticed": Reader([sample], poll_failure, share=2),
    }
