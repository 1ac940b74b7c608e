"""The configuration that a worker receives, and the checks of its content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.config.job import Job
from privet.errors import PeerMisbehavedError
from privet.federation.cluster.worker import WorkerConfig, receive_row_numbers, send_row_numbers
from privet.federation.session.session import parse_message
from privet.transport.memory import create_memory_channels
from tests.federation.harness import prepare


@pytest.fixture(scope="module")
def valid_config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The content of a valid worker configuration."""
    local = prepare(Path(tmp_path_factory.mktemp("config")), tables=1)
    content = {
        "job": Job.read(local.job_path).model_dump(mode="json"),
        "name": "shop",
        "group": {},
        "session": "ab" * 32,
        "samples": 40,
        "features": [["a", "bank"], ["d", "shop"]],
        "cut_counts": [7, 7],
        "monotone": None,
        "tables": 0,
        "run": "",
        "this_run": "ab",
    }
    _, plan = parse_message(
        WorkerConfig, "coordinator", json.dumps(content).encode()
    ).make_training_plan()
    assert plan.n_samples == 40
    return content


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("samples", -7),
        ("samples", 36_409_720_710),  # a plan for so many rows took seven gigabytes
        ("samples", 1 << 53),  # a plan for so many rows failed
        ("tables", 1 << 53),
        ("features", [["a", "bank"]]),
        ("features", [["a", "bank"], ["d", "moon"]]),
        ("monotone", [1, 2]),
        ("name", "moon"),
        ("session", "ab"),
        ("scale", "nan"),
        ("start", ["0x1p9999"]),
        ("job", {}),
    ],
)
def test_invalid_config_is_rejected(valid_config: dict[str, Any], key: str, value: object) -> None:
    content = json.dumps({**valid_config, key: value}).encode()
    with pytest.raises(PeerMisbehavedError, match=r"^coordinator: stated nonsense: "):
        parse_message(WorkerConfig, "coordinator", content)


def test_too_many_row_numbers_are_rejected() -> None:
    channels = create_memory_channels(["coordinator", "worker1"])
    for _ in range(2):
        send_row_numbers(channels["coordinator"], "worker1", np.arange(3))
    assert receive_row_numbers(channels["worker1"], "coordinator", 3).tolist() == [0, 1, 2]
    with pytest.raises(PeerMisbehavedError, match=r"^coordinator: announced 3 rows of 2$"):
        receive_row_numbers(channels["worker1"], "coordinator", 2)
