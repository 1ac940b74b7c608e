"""Prediction as a service on aligned rows: clients send ids, members exchange positions."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.config.job import Job
from privet.data.reader import read_frame
from privet.errors import PeerMisbehavedError
from privet.experiments.local_federation import LocalFederation
from privet.federation.serving.model import ServedModel
from privet.federation.serving.service import AlignedService
from privet.storage.model_part import load_part
from privet.transport import channel as messages
from privet.transport.memory import create_memory_channels
from privet.transport.sockets import SocketChannel
from tests.federation.harness import align, change, prepare, run
from tests.federation.test_alignment import count_alignments
from tests.federation.test_serving import Service, expected, positive
from tests.web.client import endpoint, post

NAMES = ("bank", "telecom", "shop")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> LocalFederation:
    """Three participants; each lacks two of the rows 1-0 to 1-5, which the others have."""
    local = prepare(tmp_path_factory.mktemp("aligned"), tables=2, names=NAMES)
    align(local, normalise='["strip", "casefold"]')
    run(local, "train").checked()
    return local


@pytest.fixture
def service(trained: LocalFederation) -> Iterator[Service]:
    yield from Service.until_the_test_is_over(trained)


def test_predictions_by_id(service: Service) -> None:
    with endpoint(service.queue) as port:
        status, answer = post(port, {"ids": ["1-17", " 1-10 ", "1-17"]})
        assert (status, positive(answer)) == (200, expected(service.model, [17, 10, 17]))
        # Ids that the bank lacks, that only the shop has, or that are unknown get the same answer.
        status, answer = post(port, {"ids": ["1-17", "1-0", "shop 0", "moon"]})
        assert (status, answer["unknown"]) == (404, {"1-0": [], "shop 0": [], "moon": []})
        assert positive(post(port, {"ids": ["1-39"]})[1]) == expected(service.model, [39])


def test_service_start_is_counted_as_an_alignment(trained: LocalFederation) -> None:
    before = count_alignments(trained, "bank")
    service = Service(trained)
    service.queue.close("the test is over")
    found = service.ended().checked()
    assert {count_alignments(trained, name) for name in NAMES} == {before + 1}
    disclosures = {reveal.what for reveal in found["bank"]}
    assert {"which of its rows all have", "number of rows that all have"} <= disclosures


def test_other_members_learn_only_positions(
    trained: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are common rows, so other members send nothing but heartbeats."""
    messages_to: dict[str, list[bytes]] = {name: [] for name in ("bank", "telecom", "dealer")}
    answers: list[tuple[str, tuple[int, ...]]] = []
    receive, receive_array = messages.receive_message, SocketChannel.receive

    def record_message(channel: Any, peer: str, *most: int) -> bytes:
        message = receive(channel, peer, *most)
        messages_to[channel.name].append(message)
        return message

    def record_array(self: SocketChannel, peer: str, expected: Any, *tag: int) -> Any:
        if self.name == "shop" and peer != "dealer" and self.current_step() == "serve":
            answers.append((peer, expected.shape))
        return receive_array(self, peer, expected, *tag)

    monkeypatch.setattr("privet.federation.serving.service.receive_message", record_message)
    service = Service(trained)
    monkeypatch.setattr(SocketChannel, "receive", record_array)
    request = service.queue.submit_and_wait(["1-17", "1-0", "1-10"])
    while len(answers) < 2:  # at least one heartbeat of each
        time.sleep(0.05)
    service.queue.close("the test is over")
    service.ended().checked()
    assert list(request.unknown_ids) == ["1-0"]
    batches = {
        name: [message for message in messages_to[name] if message not in (b"p", b"stop")]
        for name in ("bank", "telecom")
    }
    assert [len(message) for message in batches["bank"]] == [1 + 2 * 4]
    assert batches["bank"] == batches["telecom"]
    assert set(messages_to["dealer"]) == {b"p2", b"p0", b"stop"}
    assert {shape for _, shape in answers} == {(0,)}
    assert {peer for peer, _ in answers} == {"bank", "telecom"}


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (b"123", "asked for what are no positions"),
        (np.array([5], "<u4").tobytes(), "asks for rows that are not common to all"),
    ],
)
def test_invalid_positions_are_rejected(
    trained: LocalFederation, message: bytes, complaint: str
) -> None:
    job, file = Job.read(trained.job_path), load_part(trained.get_part_path("bank"))
    frame = read_frame(trained.folder / "bank" / "train.csv", id="id").take(np.arange(5))
    channel = create_memory_channels([*NAMES, "dealer"])["bank"]
    model = ServedModel(file, frame)
    service = AlignedService(model, job, channel, lambda: model, None)
    assert service._parse_rows(np.array([4, 0], "<u4").tobytes()).tolist() == [4, 0]
    with pytest.raises(PeerMisbehavedError, match=complaint) as caught:
        service._parse_rows(message)
    assert caught.value.peer == "shop"


def test_ids_are_normalised_without_an_alignment(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    change(local.job_path, ("[params]", '[ids]\nnormalise = ["digits"]\n\n[params]'))
    run(local, "train").checked()
    service = Service(local)
    request = service.queue.submit_and_wait(["no. 1/7", "moon"])
    service.queue.close("the test is over")
    service.ended().checked()
    assert request.predictions[:1] == expected(service.model, [7])
    assert request.unknown_ids == {"moon": ["bank", "shop"]}


@pytest.mark.parametrize("aligned", [False, True])
def test_ids_of_several_parts(tmp_path: Path, aligned: bool) -> None:
    local = prepare(tmp_path, tables=1)
    settings = '[ids]\nparts = ["table", "row"]\nnormalise = {table = ["casefold"]}\n'
    if aligned:
        settings = f"align = true\n\n{settings}minimum = 3\n"
    change(local.job_path, ("[params]", f"{settings}\n[params]"))
    for name in local.party_names:
        change(local.folder / name / "party.toml", ('"id"', json.dumps(["t", "r"])))
        path = local.folder / name / "train.csv"
        (_, *header), *lines = list(csv.reader(path.read_text().splitlines()))
        split_rows = [["A", row[0].partition("-")[2], *row[1:]] for row in lines]
        path.write_text(
            "\n".join(",".join(row) for row in [["t", "r", *header], *split_rows]) + "\n"
        )
    run(local, "train").checked()
    service = Service(local)
    with endpoint(service.queue, parts=["table", "row"]) as port:
        status, answer = post(port, {"ids": [["a", "7"], ["A", "0"]]})
        assert (status, positive(answer)) == (200, expected(service.model, [7, 0]))
        unknown = [] if aligned else ["bank", "shop"]
        assert post(port, {"ids": [["b", "7"]]})[1]["unknown"] == {"b, 7": unknown}
        assert post(port, {"ids": [["a"]]}) == (400, {"error": "ids: each is a list of table, row"})
        assert post(port, {"ids": ["a, 7"]})[0] == 400
    service.queue.close("the test is over")
    service.ended().checked()
