"""Training in shards: the splits of the reference, costs, resumption, and failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.shares import Elements, Share
from privet.arrays import FloatArray
from privet.boosting.binning import bucket_columns
from privet.boosting.cost_estimate import count_training_cost
from privet.boosting.model import Feature
from privet.boosting.model_part import join_parts
from privet.boosting.prediction import ValidationResult, reveal_validation_results
from privet.boosting.simulation import train_locally_with_losses
from privet.boosting.training import TrainingData, TrainingOutput, TrainingSpec
from privet.errors import DataError, ParameterError, PeerError, PeerLostError
from privet.protocols.paper.protocol import PaperProtocol
from privet.runtime.cost import Cost
from privet.runtime.run import PartyResult
from privet.runtime.runtime import Runtime
from privet.runtime.workers import Command, WorkerHandle
from privet.spec.params import Params
from privet.spec.plan import ExplainBy, Plan
from privet.transport.channel import Channel
from tests.boosting.test_federation import columns, label_of
from tests.protocols.sharding import ShardedRun, train_in_shards
from tests.runtime.harness import RecordingChannel

N = 512


def case(
    shards: int,
    n_rows: int = N,
    *,
    weighted: bool = False,
    sizes: tuple[int, ...] = (2, 3),
    **changes: Any,
) -> tuple[TrainingSpec, Plan, list[TrainingData], FloatArray, Params]:
    """Return a training run in shards, and its inputs."""
    x = columns(sum(sizes))[:, :n_rows]
    values = {"task": "regression", "tables": 3, "depth": 3, "buckets": 8, "learning_rate": 0.5}
    spec_settings = (
        *("reveal_loss", "reveal_gain", "monotone"),
        *("has_explanations", "reveal_validation", "importances_by"),
    )
    settings = {key: changes.pop(key) for key in spec_settings if key in changes}
    params = Params.parse({**values, **changes})
    label = label_of(columns(5), params.task)[:n_rows]
    if params.classes > 2:
        label += (columns(5)[1][:n_rows] > 0.5) * (label > 0)
    probe = TrainingSpec("masked", params, ("a",), (), 0, params.objective.prediction_bits)
    n_validation = round(params.validation * n_rows)
    ends = np.cumsum(sizes).tolist()
    parties = [
        bucket_columns(f"party{k + 1}", [f"x{j}" for j in range(end - size, end)],
                       x[end - size : end], params.buckets, n_validation)
        for k, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]  # fmt: skip
    federation = replace(
        probe,
        parties=tuple(party.owner for party in parties),
        features=tuple(Feature(name, party.owner) for party in parties for name in party.names),
        active=len(sizes) - 1,
        is_weighted=weighted,
        **settings,
    )
    weight = None
    if weighted:
        weight = 0.5 + np.random.default_rng(3).random(n_rows - n_validation)
        weight /= weight.mean()
    inputs = [TrainingData(party, None) for party in parties[:-1]]
    inputs.append(TrainingData(parties[-1], label, weight))
    plan = replace(federation.make_plan(n_rows, n_validation=n_validation), shards=shards)
    return federation, plan, inputs, label, params


def check_against_reference(
    run: ShardedRun, inputs: list[TrainingData], params: Params, monotone: tuple[int, ...] = ()
) -> None:
    """Check that splits are those of the reference, and that leaf values and losses agree."""
    last = inputs[-1]
    assert last.label is not None
    parties = [each.columns for each in inputs]
    n_validation = round(params.validation * len(last.label))
    reference = train_locally_with_losses(
        parties,
        last.label,
        params,
        n_validation=n_validation,
        sample_weight=last.sample_weight,
        monotone=monotone,
    )
    trained = run.trained
    model = join_parts([each.part for each in trained if each.part is not None])
    assert (model.feature == reference.model.feature).all()
    assert (model.bucket == reference.model.bucket).all()
    assert np.abs(model.leaf_values - reference.model.leaf_values).max() < 2**-10
    if reference.losses:
        assert trained[-1].losses == pytest.approx(reference.losses, rel=1e-3)


@pytest.mark.parametrize("masks", ["uniform", "lattice"])
@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("shards", [2, 4])
def test_splits_match_reference(shards: int, task: str, masks: str) -> None:
    federation, plan, inputs, _, params = case(shards, task=task, masks=masks)
    assert bool(plan.n_lattice_errors) == (masks == "lattice")
    check_against_reference(train_in_shards(federation, plan, inputs), inputs, params)


@pytest.mark.parametrize("n_rows", [3, 7])
def test_single_row_and_uneven_shards(n_rows: int) -> None:
    federation, plan, inputs, *_ = case(3, n_rows, tables=2, depth=2)
    assert {shard.n_samples for shard in plan.split_into_shards()} <= {1, 2, 3}
    unsharded = replace(plan, shards=1)
    assert unsharded.split_into_shards()[0].n_samples == n_rows
    train_in_shards(federation, plan, inputs)


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "classification", "validation": 0.25, "patience": 2, "tables": 4},
        {"validation": 0.25},
        {"weighted": True},
        {"task": "classification", "weighted": True, "subsample": 0.5, "colsample": 0.7},
        {"subsample": 0.6},
        {"task": "classification", "classes": 3},
        {"min_gain": 5.0},
        {"monotone": (-1, 0, 0, 1, 0)},
        {"sizes": (2, 1, 2), "reveal_loss": True, "reveal_gain": True},
    ],
    ids=lambda changes: ", ".join(map(str, changes)),
)
def test_all_settings(changes: dict[str, Any]) -> None:
    federation, plan, inputs, _, params = case(3, **changes)
    check_against_reference(
        train_in_shards(federation, plan, inputs), inputs, params, plan.monotone
    )


def test_three_dealers() -> None:
    federation, plan, inputs, _, params = case(2, tables=2)
    check_against_reference(train_in_shards(federation, plan, inputs, dealers=3), inputs, params)


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("masks", ["uniform", "lattice"])
def test_cost_matches_estimate(task: str, masks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are those of coordinators and all groups; rounds those of coordinators and a group."""
    federation, plan, inputs, *_ = case(3, task=task, masks=masks, tables=1, validation=0.25)
    passed: list[Share] = []

    def recording_send(handle: WorkerHandle, command: Command) -> None:
        passed.extend(share for share in command.shares if share.known)
        send(handle, command)

    def recording_receive(handle: WorkerHandle, expected: Sequence[Elements]) -> list[Share]:
        passed.extend(response := receive(handle, expected))
        return response

    send, receive = WorkerHandle.send_command, WorkerHandle.receive_response
    monkeypatch.setattr(WorkerHandle, "send_command", recording_send)
    monkeypatch.setattr(WorkerHandle, "receive_response", recording_receive)
    run = train_in_shards(federation, plan, inputs)
    setup, table = count_training_cost(federation, plan)
    records = [
        (role, record.meter)
        for role, record in [*run.coordinators.items(), *run.workers.items()]
        if isinstance(record, PartyResult)
    ]
    sent = sum(meter.sum_traffic().sent for _, meter in records)
    dealt = sum(meter.sum_traffic("offline").received for _, meter in records)
    rounds = [meter.sum_traffic().rounds for role, meter in records if role == "party1"]
    rounds += [max(meter.sum_traffic().rounds for role, meter in records if role[0] == "party1")]
    total = setup + table
    assert (total.online_bytes, total.offline_bytes) == (sent, dealt)
    assert total.rounds == sum(rounds)
    between = sum(share.ring.count_packed_bytes(share.size) for share in passed)
    assert total.worker_bytes * len(federation.parties) == between > 0
    unsharded = sum(count_training_cost(federation, replace(plan, shards=1)), start=Cost())
    assert total.rounds <= unsharded.rounds + 6  # sums, leaves and losses are masked twice


@pytest.mark.parametrize("by", ["feature", "participant"])
@pytest.mark.parametrize(
    "changes", [{}, {"task": "classification"}, {"task": "classification", "classes": 3}]
)
def test_results_on_validation_rows(changes: dict[str, Any], by: ExplainBy) -> None:
    """Workers predict exactly as coordinators do; means are rounded at random."""
    settings: dict[str, Any] = {
        "has_explanations": True,
        "reveal_validation": True,
        "importances_by": by,
    }
    federation, plan, inputs, *_ = case(3, tables=2, validation=0.25, **settings, **changes)

    def after(
        runtime: Runtime,
        trained: TrainingOutput,
        data: TrainingData | None,
        workers: Sequence[WorkerHandle],
    ) -> list[ValidationResult]:
        in_shards = reveal_validation_results(runtime, federation, plan, trained, data, workers)
        unsharded_plan = replace(plan, shards=1)
        return [
            in_shards,
            reveal_validation_results(runtime, federation, unsharded_plan, trained, data),
        ]

    run = train_in_shards(federation, plan, inputs, after=after)
    in_shards, unsharded = run.after["party2"]
    assert in_shards.predictions is not None
    assert np.array_equal(in_shards.predictions, unsharded.predictions)
    assert in_shards.predictions.shape[-1] == N // 4
    assert list(in_shards.importances) == list(unsharded.importances)
    differences = np.subtract(
        *(np.array([*v.importances.values()]) for v in (in_shards, unsharded))
    )
    assert np.abs(differences).max() < 2.0**-8
    assert run.after["party1"] == [ValidationResult(), ValidationResult()]


def test_training_resumes_from_scores_of_all_shards() -> None:
    federation, plan, inputs, _, params = case(3, tables=2)
    first = train_in_shards(federation, plan, inputs)
    assert {key[2] for key in first.scores} == {1, 2}
    longer = params.model_copy(update={"tables": 4})
    federation = replace(federation, params=longer)
    plan = replace(plan, params=longer)
    run = train_in_shards(federation, plan, inputs, earlier=(first, 2))
    check_against_reference(run, inputs, longer)


def test_protocol_without_shards_is_rejected() -> None:
    _, plan, *_ = case(2)
    with pytest.raises(ParameterError, match=r"shards: the protocol paper has no workers"):
        PaperProtocol.check_plan(plan)


def test_more_shards_than_rows_are_rejected() -> None:
    with pytest.raises(DataError, match="shards: 4, and there are 3 rows to train on"):
        case(4, 3)[1].split_into_shards()
    with pytest.raises(DataError, match="shards: 9, and there are 5 rows to validate with"):
        case(9, 50, validation=0.1)[1].split_into_shards()


@pytest.mark.parametrize("worker", [("party1", 0), ("party2", 2), ("dealer", 1)])
def test_disconnected_worker_ends_training(worker: tuple[str, int]) -> None:
    """No role hangs, whichever worker disconnects."""

    class FailingChannel(RecordingChannel):
        def send(self, peer: str, array: Any, tag: int = 0, stream: int = 0) -> None:
            self.sent = getattr(self, "sent", 0) + 1
            if self.sent > 5:
                self.abort()
                raise PeerLostError(None, "this machine fails")
            super().send(peer, array, tag, stream)

    def wrap(role: str, shard: int, channel: Channel) -> Channel:
        return FailingChannel(channel) if (role, shard) == worker else channel

    federation, plan, inputs, *_ = case(3, tables=2)
    with pytest.raises(PeerError):
        train_in_shards(federation, plan, inputs, wrap=wrap)
