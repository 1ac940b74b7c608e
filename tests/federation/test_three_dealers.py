"""Three dealers, none of which knows a mask, for all commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.config.job import Job
from privet.data.partition import split_frame
from privet.errors import DisagreementError, InputError, PeerFailedError, PeerLostError, PrivetError
from privet.experiments.local_federation import LocalFederation
from privet.federation.monitoring.events import Event
from privet.runtime.correlations import replicated
from tests.federation import test_alignment
from tests.federation.harness import N_SAMPLES, align, change, model_of, prepare, rows, run
from tests.federation.test_serving import Service, expected
from tests.federation.test_training import end_after, last_common, plain_model, same_splits

THREE = ("bank", "telecom", "shop")


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_training_and_a_prediction(tmp_path: Path, task: str) -> None:
    """Participants send and receive exactly as many bytes as with a single dealer."""
    reports: list[dict[tuple[str, str], Any]] = []
    for dealers in (1, 3):
        local = prepare(tmp_path / str(dealers), task=task, dealers=dealers)
        trained = run(local, "train").checked()
        assert same_splits(model_of(local), plain_model(local))
        predicted = run(local, "predict").checked()
        reports.append({})
        for name in local.party_names:
            for verb, found in (("train", trained), ("predict", predicted)):
                report = found[name][0]
                reports[-1][name, verb] = (
                    report.rounds,
                    report.bytes_sent,
                    report.bytes_received,
                    report.bytes_from_dealer,
                )
        values = predicted[local.recipient][1].values
        expected_values = plain_model(local).predict(rows(2, 7, task).columns)
        np.testing.assert_allclose(values, expected_values, atol=2e-3)
    assert reports[0] == reports[1]


def test_interrupted_training_resumes(tmp_path: Path) -> None:
    local = prepare(tmp_path, dealers=3)
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    done = last_common(local)
    assert run(local, "train").checked()["bank"][0].resumed_from == done
    assert same_splits(model_of(local), plain_model(local))


def test_dealers_are_not_part_of_the_job_digest(tmp_path: Path) -> None:
    """A training run can resume with other dealers."""
    local = prepare(tmp_path / "three", dealers=3)
    one = prepare(tmp_path / "one")
    assert Job.read(local.job_path).digest == Job.read(one.job_path).digest


def test_first_dealer_aligns_rows(tmp_path: Path) -> None:
    local = prepare(tmp_path, dealers=3, names=THREE)
    align(local)
    found = run(local, "train").checked()
    assert found["bank"][0].n_samples == 34
    disclosures = {r.what: r.to for r in found["bank"][0].alignment.reveals}
    assert disclosures["number of its rows"] == ["dealer1"]
    assert disclosures["number of rows that all have"] == [*THREE, "dealer1", "dealer2", "dealer3"]
    assert same_splits(model_of(local), test_alignment.plain_model(local))


def test_too_few_common_rows_are_reported_to_all_members(tmp_path: Path) -> None:
    local = prepare(tmp_path, dealers=3)
    align(local, minimum=1000)
    found = run(local, "train")
    assert set(found.errors) == set(local.member_names)
    for error in found.errors.values():
        assert "36 rows are common to all, and the job's minimum is 1,000" in str(error)


def test_a_service(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=2, dealers=3)
    run(local, "train").checked()
    service = Service(local)
    requests = [service.queue.submit_and_wait([identity]) for identity in ("1-3", "1-5")]
    for request, number in zip(requests, (3, 5), strict=True):
        assert request.predictions.tolist() == expected(service.model, [number])
    service.queue.close("the test is over")
    service.ended().checked()


def test_indicators_are_kept(tmp_path: Path) -> None:
    """Each dealer is told two of three parts of a seed; with other dealers, masks are others."""
    local = prepare(tmp_path, tables=1, dealers=3)
    local.job_path.write_text(f"keep_indicators = true\n{local.job_path.read_text()}")
    costs = []
    for _ in range(2):
        found = run(local, "train", restart=True).checked()
        assert same_splits(model_of(local), plain_model(local))
        costs.append(found["bank"][0].bytes_sent)
    assert costs[1] < costs[0]
    text = local.job_path.read_text()
    first, second = text.index('name = "dealer1"'), text.index('name = "dealer2"')
    blocks = text[first:second], text[second : text.index('name = "dealer3"')]
    local.job_path.write_text(text.replace(blocks[0] + blocks[1], blocks[1] + blocks[0]))
    found = run(local, "train", restart=True).checked()
    assert found["bank"][0].bytes_sent == costs[0]
    assert same_splits(model_of(local), plain_model(local))


@pytest.mark.parametrize("dealer", ["dealer1", "dealer2", "dealer3"])
def test_lost_dealer_is_named_by_all_members(tmp_path: Path, dealer: str) -> None:
    """Every other member names it, and training resumes from the checkpoint."""
    local = prepare(tmp_path, dealers=3)

    def leave(event: Event) -> None:
        if event.kind == "started":
            raise KeyboardInterrupt

    found = run(local, "train", handlers={dealer: leave})
    for name, error in found.errors.items():
        if name != dealer:
            assert isinstance(error, PeerLostError), (name, error)
            assert error.peer == dealer
    assert set(found.errors) == set(local.member_names)
    run(local, "train").checked()
    assert same_splits(model_of(local), plain_model(local))


def test_absent_dealer_is_named(tmp_path: Path) -> None:
    local = prepare(tmp_path, dealers=3)
    found = run(local, "train", absent=("dealer2",), wait=2.0)
    for name, error in found.errors.items():
        assert isinstance(error, PeerLostError), (name, error)
        assert "dealer2" in str(error)


def test_dealer_without_keys_ends_the_other_members(tmp_path: Path) -> None:
    local = prepare(tmp_path, dealers=3)
    (tmp_path / "dealer3" / "dealer3.key").unlink()
    found = run(local, "train", wait=30.0, last=("dealer3",))
    for name in set(local.member_names) - {"dealer3"}:
        assert isinstance(found.errors[name], PeerFailedError)
        assert found.errors[name].peer == "dealer3"  # type: ignore[attr-defined]


def test_different_seeds_of_two_dealers_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names both dealers, before any computation."""
    local = prepare(tmp_path, dealers=3)
    exchange = replicated.DealerPeers.exchange_seeds

    def other(self: Any, n_parties: int, content: bytes) -> Any:
        name, parts = exchange(self, n_parties, content)
        if self.dealer_index == 1:
            parts[1][0] = bytes(32)
        return name, parts

    monkeypatch.setattr(replicated.DealerPeers, "exchange_seeds", other)
    found = run(local, "train")
    message = str(found.errors["bank"])
    assert "dealer3 and dealer2 should have the same seed for us, and do not" in message
    assert set(found.errors) == set(local.member_names)


def preprocess_with_three_dealers(
    local: LocalFederation, samples: int = N_SAMPLES, done: int = 0
) -> list[Path]:
    """Run the three dealers' preprocessing commands, and give each participant its files."""
    counts = [len(party.frame.names) for party in split_frame(rows(1), len(local.party_names))]
    options = [f"--features={','.join(map(str, counts))}", f"--samples={samples}", "--cuts=7"]
    running = {
        name: local.start_process(
            name, "train", f"--ahead={local.folder / name / 'dealt'}", f"--done={done}", *options
        )
        for name in local.dealer_names
    }
    for name, process in running.items():
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, (name, err)
    found = []
    for name in local.party_names:
        folders = [local.folder / dealer / "dealt" for dealer in local.dealer_names]
        paths = [folder / f"{name}.correlations" for folder in folders]
        found += paths
        listed = ", ".join(f'"{path}"' for path in paths)
        party = local.folder / name / "party.toml"
        if "correlations" not in party.read_text():
            change(party, ("[data]", f"correlations = [{listed}]\n[data]"))
    return found


def test_offline_preprocessing(tmp_path: Path) -> None:
    """Each dealer writes separate files, which a training run uses together, once."""
    local = prepare(tmp_path, tables=2, dealers=3)
    paths = preprocess_with_three_dealers(local)
    trained = run(local, "train", absent=local.dealer_names).checked()
    assert trained["bank"][0].correlations == "ahead"
    assert same_splits(model_of(local), plain_model(local))
    assert not any(path.exists() for path in paths)


def test_mismatched_preprocessing_files_are_rejected(tmp_path: Path) -> None:
    """Files of two preprocessing runs, of one dealer twice, or too few are rejected."""
    local = prepare(tmp_path / "first", tables=1, dealers=3)
    paths = preprocess_with_three_dealers(local)
    party = local.folder / "bank" / "party.toml"
    whole = party.read_text()
    for change_to, complaint in (
        ([paths[0], paths[0], paths[2]], "was signed with the certificate"),
        ([paths[1], paths[0], paths[2]], "was signed with the certificate"),
        (paths[:2], "the job has 3 dealers, and each of them makes a file for us: name 3"),
    ):
        listed = ", ".join(f'"{path}"' for path in change_to)
        start = whole.index("correlations = [")
        end = whole.index("]", start) + 1
        party.write_text(whole[:start] + f"correlations = [{listed}]" + whole[end:])
        found = run(local, "train", absent=(*local.dealer_names, "shop"), wait=2.0)
        assert complaint in str(found.errors["bank"])
    party.write_text(whole)
    for dealer in local.dealer_names:
        (local.folder / dealer / "dealt").rename(local.folder / dealer / "old")
    preprocess_with_three_dealers(local)
    (local.folder / "dealer2" / "old" / "bank.correlations").replace(paths[1])
    found = run(local, "train", absent=(*local.dealer_names, "shop"), wait=2.0)
    assert "is of another dealing than" in str(found.errors["bank"])


def test_dealers_must_agree_on_offline_preprocessing(tmp_path: Path) -> None:
    """Dealers compare their settings before they generate anything, and write no files."""
    local = prepare(tmp_path, tables=1, dealers=3)
    running = {}
    for name in local.dealer_names:
        samples = 40 if name == "dealer2" else 39
        folder = local.folder / name / "dealt"
        options = ("--features=2,2", f"--samples={samples}", "--cuts=7", f"--ahead={folder}")
        running[name] = local.start_process(name, "train", *options)
    for name, process in running.items():
        _, err = process.communicate(timeout=60)
        assert process.returncode == DisagreementError.exit_code, (name, err)
        assert "samples: " in err
        assert not list((local.folder / name).glob("dealt/*"))


def played(folder: Path) -> LocalFederation:
    """Return a federation whose participants play the dealers, each starting one with itself."""
    local = prepare(folder, tables=2, names=THREE, dealers=3)
    for dealer, player in zip(local.dealer_names, THREE, strict=True):
        change(local.job_path, (f'name = "{dealer}"', f'name = "{dealer}"\nby = "{player}"'))
        keys = local.folder / dealer
        change(
            local.folder / player / "party.toml",
            (
                "[data]",
                f'[dealer]\nkey = "{keys / dealer}.key"\ncertificate = "{keys / dealer}.crt"\n'
                "[data]",
            ),
        )
    return local


def test_participants_play_the_dealers(tmp_path: Path) -> None:
    """Each in a process of its own; nobody from outside is there."""
    local = played(tmp_path)
    for verb in ("train", "predict"):
        running = {name: local.start_process(name, verb) for name in THREE}
        for name, process in running.items():
            _, err = process.communicate(timeout=60)
            assert process.returncode == 0, (name, err)
            assert "which we play" in err
    assert same_splits(model_of(local), plain_model(local))


DEALER_ENTRY = 'address = "127.0.0.1:{port}"\nfingerprint = "{letter}{zeros}"\n'


def dealer_entry(number: int) -> str:
    return DEALER_ENTRY.format(port=9000 + number, letter="abcdef"[number], zeros="0" * 63)


def replace_dealers(local: LocalFederation, *dealers: str, **settings: str) -> None:
    """Replace the dealer of a job."""
    text = local.job_path.read_text()
    start, end = text.index("[dealer]"), text.index("[[participants]]")
    listed = "".join(f"[[dealers]]\n{dealer}\n" for dealer in dealers)
    lines = "".join(f"{key} = {value}\n" for key, value in settings.items())
    local.job_path.write_text(lines + text[:start] + listed + text[end:])


@pytest.mark.parametrize(
    ("dealers", "settings", "complaint"),
    [
        ([], {}, r"dealers: there is one \[dealer\], or one or three \[\[dealers\]\]"),
        ([dealer_entry(0), dealer_entry(1)], {}, "dealers: there are one or three, and here are 2"),
        (
            [dealer_entry(k) for k in range(4)],
            {},
            "dealers: there are one or three, and here are 4",
        ),
        (
            [dealer_entry(0) + 'name = "bank"', dealer_entry(1), dealer_entry(2)],
            {},
            "dealers: 'bank' is the name of somebody else, too",
        ),
        (
            [dealer_entry(0) + 'name = "x"', dealer_entry(1) + 'name = "x"', dealer_entry(2)],
            {},
            "dealers: 'x' is the name of somebody else, too",
        ),
        (
            [dealer_entry(0), dealer_entry(0), dealer_entry(2)],
            {},
            "two have the same of fingerprints",
        ),
        (
            [dealer_entry(k) for k in range(3)],
            {"protocol": '"paper"'},
            "dealers: the protocol paper takes one; use masked",
        ),
        (
            [dealer_entry(0) + 'by = "bank"'],
            {},
            "dealers.by: bank would be the only dealer, and know all masks",
        ),
        (
            [dealer_entry(k) + 'by = "bank"' for k in range(3)],
            {},
            "dealers.by: three participants play the three dealers, each of them one",
        ),
        (
            [dealer_entry(0) + 'by = "bank"', dealer_entry(1), dealer_entry(2)],
            {},
            "dealers.by: three participants play the three dealers, each of them one",
        ),
        (
            [dealer_entry(k) + f'by = "{name}"' for k, name in enumerate(("bank", "post", "shop"))],
            {},
            "dealers.by: 'post' is none of bank, telecom, shop",
        ),
        (
            [dealer_entry(k) + f'by = "{name}"' for k, name in enumerate(THREE)],
            {"align": "true"},
            "align: the dealer that aligns must collude with nobody",
        ),
    ],
)
def test_invalid_jobs_are_rejected(
    tmp_path: Path, dealers: list[str], settings: dict[str, str], complaint: str
) -> None:
    local = prepare(tmp_path, names=THREE)
    replace_dealers(local, *dealers, **settings)
    with pytest.raises(InputError, match=complaint):
        Job.read(local.job_path)


def test_valid_jobs_are_accepted(tmp_path: Path) -> None:
    """A single [[dealers]] entry equals [dealer]; three can have names and operators."""
    local = prepare(tmp_path, names=THREE)
    replace_dealers(local, dealer_entry(0))
    assert Job.read(local.job_path).dealer_names == ("dealer",)
    local = prepare(tmp_path / "named", names=THREE)
    replace_dealers(local, dealer_entry(0) + 'name = "notary"', dealer_entry(1), dealer_entry(2))
    assert Job.read(local.job_path).dealer_names == ("notary", "dealer2", "dealer3")
    local = prepare(tmp_path / "played", names=THREE)
    replace_dealers(local, *(dealer_entry(k) + f'by = "{name}"' for k, name in enumerate(THREE)))
    job = Job.read(local.job_path)
    assert job.dealer_operators == dict(zip(job.dealer_names, THREE, strict=True))
    assert "dealers' players" in job.list_agreed_settings()


def test_members_must_agree_on_the_dealers(tmp_path: Path) -> None:
    """A different order of the dealers is detected before any computation."""
    local = prepare(tmp_path, dealers=3)
    text = local.job_path.read_text()
    other = tmp_path / "other.toml"
    first, second = text.index('name = "dealer1"'), text.index('name = "dealer2"')
    blocks = text[first:second], text[second : text.index('name = "dealer3"')]
    other.write_text(text.replace(blocks[0] + blocks[1], blocks[1] + blocks[0]))
    found = run(local, "train", jobs={"bank": other}, wait=5.0)
    assert set(found.errors) == set(local.member_names)
    assert all(isinstance(error, PrivetError) for error in found.errors.values())
    assert any("dealers" in str(error) for error in found.errors.values())
