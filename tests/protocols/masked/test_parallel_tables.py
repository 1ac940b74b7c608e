"""Correlated randomness of tables in parallel is the same as of one table after the other."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from privet.arithmetic.prg import Place
from privet.arithmetic.rings import Ring
from privet.boosting.model import Feature
from privet.boosting.training import TrainingSpec, train
from privet.runtime.correlations import dealer as dealer_module
from privet.runtime.correlations.dealer import SingleDealer
from privet.runtime.correlations.source import CorrelationSender
from privet.spec.params import Params
from privet.transport.channel import Array

PARTIES = ("ann", "bob")
ROWS, TABLES = 90, 4


class _RecordingSender(CorrelationSender):
    """Records all messages to participants; seeds are fixed."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, bytes]] = []

    def distribute_seeds(self) -> tuple[str, Any]:
        return "dealing", [bytes([k] * 32) for k in range(len(PARTIES))]

    def send(self, party: int, array: Array, tag: int) -> None:
        self.sent.append((party, tag, array.tobytes()))

    def close(self, tag: int) -> None:
        self.sent.append((-1, tag, b""))


class _SlowDealer(SingleDealer):
    """A dealer that waits before some draws, so that its threads alternate."""

    def _next_place(self, kind: str, shape: tuple[int, ...], ring: Ring) -> Place:
        place = super()._next_place(kind, shape, ring)
        if random.Random(str(place)).random() < 0.3:
            time.sleep(0.0005)
        return place


def record_sent(
    params: Params, parallel_tables: int, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> Any:
    monkeypatch.setattr(dealer_module, "MAX_PARALLEL_TABLES", parallel_tables)
    features = tuple(Feature(f"x{k}", PARTIES[k % 2]) for k in range(4))
    federation = TrainingSpec("masked", params, PARTIES, features, 1, 8, **settings)
    sink = _RecordingSender()
    dealer = _SlowDealer(len(PARTIES), sink)
    train(dealer, federation, federation.make_plan(ROWS), None)
    dealer.close()
    return sink.sent


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize(
    ("chosen", "settings"),
    [
        ({}, {}),
        ({"masks": "lattice"}, {}),
        ({"validation": 0.2}, {"reveal_loss": True, "reveal_gain": True}),
        ({"subsample": 0.5, "colsample": 0.5}, {"has_explanations": True}),
        ({"min_child_weight": 2.0, "min_gain": 0.1}, {"monotone": (1, 0, -1, 0)}),
        ({}, {"is_weighted": True}),
    ],
    ids=["plain", "lattice", "validation", "sampled", "constrained", "weighted"],
)
def test_parallel_tables_get_the_same_correlations(
    task: str, chosen: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = Params(task=task, tables=TABLES, depth=2, buckets=4, **chosen)
    one, four = (record_sent(params, count, monkeypatch, **settings) for count in (1, 4))
    assert len(one) > 20 * TABLES
    assert one == four
