"""A model that is served from a file, and what takes its place there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privet.errors import ModelError
from privet.federation import new_models
from privet.federation.events import Event
from privet.federation.new_models import WatchedModel
from privet.federation.served_model import ServedModel
from privet.files.part_file import load_part
from tests.federation.harness import prepare, rows, run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    local = prepare(tmp_path_factory.mktemp("models"), tables=1)
    run(local, "train").checked()
    return ServedModel(load_part(local.part("bank")), rows(1))


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_models, "_LOOK_SECONDS", 0.02)


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
        found = replace(model.file, run=name)
        return ServedModel(found, model.frame)

    path.write_text("first")
    with WatchedModel(path, load, told.append, aligned=False) as newest:
        first = newest()
        path.write_text("damaged")
        assert soon(lambda: len(told) == 1)
        assert newest() is first
        path.unlink()  # and nothing in its place yet
        time.sleep(0.1)
        path.write_text("second")
        assert soon(lambda: newest().file.run == "second")
        second = newest()
        path.touch()  # the same again
        time.sleep(0.1)
        assert newest() is second
    assert [event.fields["used"] for event in told] == [False, True]


@pytest.mark.parametrize("aligned", [False, True])
def test_other_rows_are_not_for_a_service_that_aligned_them(
    model: ServedModel, tmp_path: Path, aligned: bool
) -> None:
    path, told = tmp_path / "part", list[Event]()

    def load() -> ServedModel:
        name = path.read_text()
        frame = model.frame if name == "first" else model.frame.take(np.arange(5))
        return ServedModel(replace(model.file, run=name), frame)

    path.write_text("first")
    with WatchedModel(path, load, told.append, aligned=aligned) as newest:
        path.write_text("second")
        assert soon(lambda: bool(told))
        assert newest().file.run == ("first" if aligned else "second")
    if aligned:
        assert "the table has other ids now; start the service anew" in told[0].text
