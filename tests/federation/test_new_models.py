"""A model that is served from a file, and what takes its place there."""

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
from privet.federation.serving import model as new_models
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
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_models, "_POLL_SECONDS", 0.02)


def soon(there: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while not there() and time.monotonic() < until:
        time.sleep(0.01)
    return there()


def test_the_newest_that_can_be_used(model: ServedModel, tmp_path: Path) -> None:
    path, told = tmp_path / "part", list[Event]()

    def load() -> ServedModel:
        name = path.read_text()
        if name == "damaged":
            raise ModelError("damaged")
        found = replace(model.part_file, run=name)
        return ServedModel(found, model.frame)

    path.write_text("first")
    with ReloadingModel(path, load, told.append, rows_are_aligned=False) as newest:
        first = newest()
        path.write_text("damaged")
        assert soon(lambda: len(told) == 1)
        assert newest() is first
        path.unlink()  # and nothing in its place yet
        time.sleep(0.1)
        path.write_text("second")
        assert soon(lambda: newest().part_file.run == "second")
        second = newest()
        path.touch()  # the same again
        time.sleep(0.1)
        assert newest() is second
    assert [event.fields.get("refused", False) for event in told] == [True, False]
    assert not any(event.fields["used"] for event in told)  # that takes all others


@pytest.mark.parametrize("aligned", [False, True])
def test_other_rows_are_not_for_a_service_that_aligned_them(
    model: ServedModel, tmp_path: Path, aligned: bool
) -> None:
    path, told = tmp_path / "part", list[Event]()

    def load() -> ServedModel:
        name = path.read_text()
        frame = model.frame if name == "first" else model.frame.take(np.arange(5))
        return ServedModel(replace(model.part_file, run=name), frame)

    path.write_text("first")
    with ReloadingModel(path, load, told.append, rows_are_aligned=aligned) as newest:
        path.write_text("second")
        assert soon(lambda: bool(told))
        assert newest().part_file.run == ("first" if aligned else "second")
    if aligned:
        assert "the table has other ids now; start the service anew" in told[0].text


def following(model: ServedModel, newest: ServedModel) -> tuple[UnalignedService, Channel]:
    """Return what the bank runs, and the recipient's end of the line."""
    channels = create_memory_channels(["bank", "shop", "dealer"])
    service = UnalignedService(model, model.part_file.job, channels["bank"], lambda: newest, None)
    return service, channels["shop"]


def test_a_model_is_promised_if_it_is_there(model: ServedModel) -> None:
    newer = ServedModel(replace(model.part_file, run="newer"), model.frame)
    service, shop = following(model, newer)
    flag = Expected(np.dtype(np.uint8), (1,))
    for name, there in ((newer.model_id, 1), (model.model_id, 0), ("moon", 0)):
        send_message(shop, ["bank"], PROPOSE_MODEL + name.encode())
        assert service._answer_message()
        assert shop.receive("bank", flag).tolist() == [there]
    assert service.model is model  # nobody has said yet that all have it


@pytest.mark.parametrize("promised", [False, True])
def test_a_recipient_cannot_have_what_was_not_promised(model: ServedModel, promised: bool) -> None:
    newer = ServedModel(replace(model.part_file, run="newer"), model.frame)
    service, shop = following(model, newer)
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
def test_a_dealer_is_told_two_numbers_of_a_new_model(model: ServedModel, message: bytes) -> None:
    job, channels = model.part_file.job, create_memory_channels(["bank", "shop", "dealer"])
    dealer = DealerService(job, channels["dealer"], 5, 1)
    send_message(channels["shop"], ["dealer"], message)
    counter: Any = CostCounter(2)
    with pytest.raises(PeerMisbehavedError, match="asked for what is no number of rows"):
        dealer(counter, None)


@pytest.mark.parametrize("tables", [0, 999_999])
def test_a_dealer_deals_for_no_more_tables_than_there_can_be(
    model: ServedModel, tables: int
) -> None:
    job, channels = model.part_file.job, create_memory_channels(["bank", "shop", "dealer"])
    dealer = DealerService(job, channels["dealer"], 5, 1)
    send_message(channels["shop"], ["dealer"], SWITCH_MODEL + b"%d,5" % tables)
    counter: Any = CostCounter(2)
    with pytest.raises(PeerMisbehavedError, match=f"a model of {tables} tables: there is none"):
        dealer(counter, None)
