"""A served model that is replaced by a new model file."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.errors import ModelError, PeerMisbehavedError
from privet.federation.monitoring.events import Event
from privet.federation.serving import model as model_module
from privet.federation.serving.model import ReloadingModel, ServedModel
from privet.federation.serving.service import (
    PROPOSE_MODEL,
    SWITCH_MODEL,
    DealerService,
    UnalignedService,
)
from privet.runtime.cost import CostCounter
from privet.storage.model_part import load_part
from privet.transport.channel import Channel, Expected, send_message
from privet.transport.memory import create_memory_channels
from tests.federation.harness import prepare, rows, run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    local = prepare(tmp_path_factory.mktemp("models"), tables=1)
    run(local, "train").checked()
    return ServedModel(load_part(local.get_part_path("bank")), rows(1))


@pytest.fixture(autouse=True)
def frequent_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "_POLL_SECONDS", 0.02)


def wait_until(is_true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not is_true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_true()


def test_newest_valid_model_is_loaded(model: ServedModel, tmp_path: Path) -> None:
    path, events = tmp_path / "part", list[Event]()

    def load() -> ServedModel:
        name = path.read_text()
        if name == "damaged":
            raise ModelError("damaged")
        found = replace(model.part_file, run=name)
        return ServedModel(found, model.frame)

    path.write_text("first")
    with ReloadingModel(path, load, events.append, rows_are_aligned=False) as newest:
        first = newest()
        path.write_text("damaged")
        assert wait_until(lambda: len(events) == 1)
        assert newest() is first
        path.unlink()  # not yet replaced
        time.sleep(0.1)
        path.write_text("second")
        assert wait_until(lambda: newest().part_file.run == "second")
        second = newest()
        path.touch()  # unchanged content
        time.sleep(0.1)
        assert newest() is second
    assert [event.fields.get("refused", False) for event in events] == [True, False]
    assert not any(event.fields["used"] for event in events)  # requires all participants


@pytest.mark.parametrize("aligned", [False, True])
def test_aligned_service_rejects_other_rows(
    model: ServedModel, tmp_path: Path, aligned: bool
) -> None:
    path, events = tmp_path / "part", list[Event]()

    def load() -> ServedModel:
        name = path.read_text()
        frame = model.frame if name == "first" else model.frame.take(np.arange(5))
        return ServedModel(replace(model.part_file, run=name), frame)

    path.write_text("first")
    with ReloadingModel(path, load, events.append, rows_are_aligned=aligned) as newest:
        path.write_text("second")
        assert wait_until(lambda: bool(events))
        assert newest().part_file.run == ("first" if aligned else "second")
    if aligned:
        assert "the table has other ids now; start the service anew" in events[0].text


def follower_and_recipient(
    model: ServedModel, newest: ServedModel
) -> tuple[UnalignedService, Channel]:
    """Return the bank's service, and the recipient's channel."""
    channels = create_memory_channels(["bank", "shop", "dealer"])
    service = UnalignedService(model, model.part_file.job, channels["bank"], lambda: newest, None)
    return service, channels["shop"]


def test_available_model_is_promised(model: ServedModel) -> None:
    newer = ServedModel(replace(model.part_file, run="newer"), model.frame)
    service, shop = follower_and_recipient(model, newer)
    flag = Expected(np.dtype(np.uint8), (1,))
    for name, expected in ((newer.model_id, 1), (model.model_id, 0), ("moon", 0)):
        send_message(shop, ["bank"], PROPOSE_MODEL + name.encode())
        assert service._answer_message()
        assert shop.receive("bank", flag).tolist() == [expected]
    assert service.model is model  # the recipient has not switched yet


@pytest.mark.parametrize("promised", [False, True])
def test_switch_to_an_unpromised_model_is_rejected(model: ServedModel, promised: bool) -> None:
    newer = ServedModel(replace(model.part_file, run="newer"), model.frame)
    service, shop = follower_and_recipient(model, newer)
    if promised:
        send_message(shop, ["bank"], PROPOSE_MODEL + newer.model_id.encode())
        service._answer_message()
    send_message(shop, ["bank"], SWITCH_MODEL + (b"moon" if promised else newer.model_id.encode()))
    with pytest.raises(PeerMisbehavedError, match="wants a model that we did not promise") as found:
        service._answer_message()
    assert found.value.peer == "shop"
    assert service.model is model


@pytest.mark.parametrize(
    "message",
    [SWITCH_MODEL, SWITCH_MODEL + b"3", SWITCH_MODEL + b"3,-4", SWITCH_MODEL + b"3,1234567"],
)
def test_dealer_rejects_an_invalid_switch_message(model: ServedModel, message: bytes) -> None:
    job, channels = model.part_file.job, create_memory_channels(["bank", "shop", "dealer"])
    dealer = DealerService(job, channels["dealer"], 5, 1)
    send_message(channels["shop"], ["dealer"], message)
    counter: Any = CostCounter(2)
    with pytest.raises(PeerMisbehavedError, match="asked for what is no number of rows"):
        dealer(counter, None)


@pytest.mark.parametrize("tables", [0, 999_999])
def test_dealer_rejects_an_invalid_table_count(model: ServedModel, tables: int) -> None:
    job, channels = model.part_file.job, create_memory_channels(["bank", "shop", "dealer"])
    dealer = DealerService(job, channels["dealer"], 5, 1)
    send_message(channels["shop"], ["dealer"], SWITCH_MODEL + b"%d,5" % tables)
    counter: Any = CostCounter(2)
    with pytest.raises(PeerMisbehavedError, match=f"a model of {tables} tables: there is none"):
        dealer(counter, None)
