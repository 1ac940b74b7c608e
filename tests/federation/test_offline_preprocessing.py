"""Training with preprocessing files instead of an online dealer."""

from __future__ import annotations

import re
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest

from privet.config.job import Job
from privet.errors import (
    CorrelationError,
    DisagreementError,
    PeerLostError,
    PrivetError,
    UnavailableError,
)
from privet.experiments.local_federation import LocalFederation
from privet.federation.monitoring.events import Event
from privet.federation.offline import (
    USED_SEEDS_FOLDER,
    generate_preprocessing_files,
    make_anonymous_features,
    make_dealer_training_program,
)
from privet.runtime.run import DEALER_NAME, count_preprocessing_bytes, preprocess
from privet.transport.tls import load_identity
from tests.federation.harness import (
    N_SAMPLES,
    NAMES,
    Run,
    change,
    model_of,
    prepare,
    preprocess_offline,
    preprocessing_file,
    run,
)
from tests.federation.test_training import end_after, last_common, plain_model, same_splits


def train_offline(local: LocalFederation, **options: object) -> Run:
    return run(local, "train", absent=(DEALER_NAME,), **options)  # type: ignore[arg-type]


def errors_of(found: Run) -> dict[str, PrivetError]:
    """Return the errors; every role must have failed with an error of Privet."""
    assert not found.results
    assert all(isinstance(error, PrivetError) for error in found.errors.values()), found.errors
    return found.errors  # type: ignore[return-value]


@pytest.fixture
def local(tmp_path: Path) -> LocalFederation:
    """A federation whose dealer generated the preprocessing files and went offline."""
    local = prepare(tmp_path)
    preprocess_offline(local)
    return local


@pytest.mark.parametrize("names", [NAMES, ("bank", "telecom", "shop")])
@pytest.mark.parametrize("protocol", ["masked", "paper"])
def test_training_matches_training_with_an_online_dealer(
    tmp_path: Path, names: tuple[str, ...], protocol: str
) -> None:
    offline = prepare(tmp_path / "offline", tables=2, names=names, protocol=protocol)
    preprocess_offline(offline)
    for name in names:
        assert stat.S_IMODE(preprocessing_file(offline, name).stat().st_mode) == 0o600
    reports = [report for report, _ in train_offline(offline).checked().values()]
    online = prepare(tmp_path / "online", tables=2, names=names, protocol=protocol)
    found = run(online, "train").checked()
    online_reports = [found[name][0] for name in names]
    assert same_splits(model_of(offline), model_of(online))
    # Rounding depends on the shares: the last of a leaf value's 16 fraction bits differ.
    tolerance = 2**-14 if protocol == "masked" else 2**-10
    np.testing.assert_allclose(
        model_of(offline).leaf_values, model_of(online).leaf_values, rtol=0, atol=tolerance
    )
    if protocol == "masked":
        assert same_splits(model_of(offline), plain_model(offline))
    for key in ("rounds", "bytes_sent", "bytes_received", "reveals"):
        assert sorted(str(getattr(r, key)) for r in reports) == sorted(
            str(getattr(r, key)) for r in online_reports
        )
    dealer_bytes = [
        sum(report.bytes_from_dealer for report in each) for each in (reports, online_reports)
    ]
    assert dealer_bytes[0] == dealer_bytes[1] > 0
    assert {report.correlations for report in reports} == {"ahead"}
    # The files are deleted, and the model can predict with an online dealer.
    assert not any(preprocessing_file(offline, name).exists() for name in names)
    run(offline, "predict").checked()


@pytest.mark.parametrize("protocol", ["masked", "paper"])
@pytest.mark.parametrize("done", [0, 2])
def test_estimated_size_is_exact(tmp_path: Path, protocol: str, done: int) -> None:
    local = prepare(tmp_path, protocol=protocol, names=("bank", "telecom", "shop"))
    job, events = Job.read(local.job_path), list[Event]()
    dealer = local.folder / DEALER_NAME
    identity = load_identity(dealer / "dealer.key", dealer / "dealer.crt")
    federation = job.make_training_spec(make_anonymous_features(job, [2, 2, 1]))
    paths = generate_preprocessing_files(
        job, federation, identity, dealer / "dealt", 40, done, events.append
    )
    size = sum(path.stat().st_size for path in paths)
    assert (events[0].kind, events[0].fields["bytes"]) == ("room", size)
    assert f"{size:,} bytes" in events[0].text
    assert [event.fields["table"] for event in events[1:]] == list(range(done + 1, 4))


def test_full_disk_is_reported_before_generating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = prepare(tmp_path)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(UnavailableError, match=r"0 MB are free and .* MB are needed; make"):
        preprocess_offline(local)
    assert not list((local.folder / DEALER_NAME / "dealt").iterdir())


def test_preprocessing_file_is_used_once(local: LocalFederation) -> None:
    copies = {name: preprocessing_file(local, name).read_bytes() for name in NAMES}
    train_offline(local).checked()
    for name in NAMES:
        assert len(list((local.get_part_path(name).parent / USED_SEEDS_FOLDER).iterdir())) == 1
        other = preprocessing_file(local, name).with_name("a copy")
        other.write_bytes(copies[name])
        change(local.folder / name / "party.toml", (f"{name}.correlations", "a copy"))
    for name, error in errors_of(train_offline(local, restart=True)).items():
        assert isinstance(error, CorrelationError)
        assert re.search(r"a copy: was used before, under this or another name", str(error)), name
        assert "ask the dealer for a new dealing" in str(error)
    # A completed training run needs no preprocessing file, and ignores the one in its place.
    assert {r.rounds for r, _ in train_offline(local).checked().values()} == {0}


def test_missing_file_is_reported(local: LocalFederation) -> None:
    preprocessing_file(local, "shop").unlink()
    found = run(local, "train", absent=(DEALER_NAME, "bank"))
    with pytest.raises(CorrelationError, match=r"shop\.correlations: No such file .* put the deal"):
        raise found.errors["shop"]


def test_file_of_another_participant_is_rejected(local: LocalFederation) -> None:
    preprocessing_file(local, "shop").write_bytes(preprocessing_file(local, "bank").read_bytes())
    found = run(local, "train", absent=(DEALER_NAME, "bank"))
    with pytest.raises(CorrelationError, match=r"shop\.correlations: is for bank, not for shop"):
        raise found.errors["shop"]
    assert preprocessing_file(local, "shop").exists()


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_file_is_rejected(local: LocalFederation, damage: str) -> None:
    path = preprocessing_file(local, "shop")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(path.read_bytes()[:-1] if damage == "cut" else content)
    found = run(local, "train", absent=(DEALER_NAME, "bank"))
    with pytest.raises(CorrelationError, match=r"shop\.correlations: was cut short or changed"):
        raise found.errors["shop"]


def test_file_of_an_unknown_dealer_is_rejected(local: LocalFederation) -> None:
    """The job's dealer has a new key, or another dealer generated the file."""
    found = re.search(
        r'\[dealer\]\naddress = .*\nfingerprint = "(\w+)"', local.job_path.read_text()
    )
    assert found is not None
    change(local.job_path, (found[1], "0" * 64))
    error = run(local, "train", absent=(DEALER_NAME, "bank")).errors["shop"]
    assert isinstance(error, CorrelationError)
    assert f"{found[1][:16]}…, and the job's dealer has {'0' * 16}…" in str(error)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("depth = 2", "depth = 3", "was dealt for a job with the digest: "),
        ("buckets = 8", "buckets = 9", "was dealt for a job with the digest: "),
    ],
)
def test_file_of_another_job_is_rejected(
    local: LocalFederation, old: str, new: str, complaint: str
) -> None:
    change(local.job_path, (old, new))
    for name, error in errors_of(train_offline(local)).items():
        assert f"{name}.correlations: {complaint}" in str(error)
        assert preprocessing_file(local, name).exists()


def test_file_of_another_version_is_rejected(
    local: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privet.federation.offline.__version__", "99.0")
    for name, error in errors_of(train_offline(local)).items():
        assert re.search(
            rf"{name}\.correlations: .* the version: .*, and here it is 99\.0", str(error)
        )


def test_file_for_other_sample_and_feature_counts_is_rejected(local: LocalFederation) -> None:
    change(local.folder / "bank" / "party.toml", ('id = "id"', 'id = "id"\ncolumns = ["a"]'))
    found = run(local, "train", absent=(DEALER_NAME, "shop"))
    with pytest.raises(CorrelationError, match=r"features of the participants: \[3, 2\].*\[1, 2\]"):
        raise found.errors["bank"]
    data = local.folder / "shop" / "train.csv"
    data.write_text("".join(data.read_text().splitlines(keepends=True)[:-1]))
    found = run(local, "train", absent=(DEALER_NAME, "bank"))
    with pytest.raises(CorrelationError, match="was dealt for samples: 40, and here it is 39"):
        raise found.errors["shop"]


def test_files_of_two_preprocessing_runs_are_rejected_by_all_participants(
    local: LocalFederation,
) -> None:
    first = preprocessing_file(local, "bank").read_bytes()
    preprocess_offline(local)
    preprocessing_file(local, "bank").write_bytes(first)
    errors = errors_of(train_offline(local))
    for name, error in errors.items():
        other = "shop" if name == "bank" else "bank"
        assert isinstance(error, DisagreementError)
        assert re.search(rf"correlations: dealing \w+ here, dealing \w+ at {other}: ", str(error))
        assert (
            "privet dealer --job job.toml --ahead FOLDER --samples 40 --features 3,2 --cuts 7`"
            in str(error)
        )
        assert (error.peer, error.step) == (other, "agreement")
        assert preprocessing_file(local, name).exists()  # no file was used


def test_participants_must_agree_on_offline_preprocessing(local: LocalFederation) -> None:
    """A participant that expects an online dealer does not wait for it in vain."""
    change(local.folder / "shop" / "party.toml", ('correlations = "shop.correlations"\n', ""))
    found = run(local, "train", absent=(DEALER_NAME,), wait=15.0)
    for error in found.errors.values():
        assert isinstance(error, PeerLostError)
        assert "has its correlations another way" in str(error)
    assert preprocessing_file(local, "bank").exists()


def test_file_with_different_public_constants_is_rejected(
    local: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dealer's machine computes different constants, which are in the files' manifests."""
    for name in NAMES:
        preprocessing_file(local, name).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(
            "privet.federation.session.public_constants.run_self_test", lambda: {"sines": "others"}
        )
        preprocess_offline(local)
    for name, error in errors_of(train_offline(local)).items():
        assert isinstance(error, CorrelationError)
        assert "was dealt with other numbers of this machine's" in str(error)
        assert "train noise" in str(error)
        assert preprocessing_file(local, name).exists()


def test_ids_are_compared_without_a_dealer(local: LocalFederation) -> None:
    data = local.folder / "bank" / "train.csv"
    header, first, second, *rest = data.read_text().splitlines(keepends=True)
    data.write_text("".join([header, second, first, *rest]))
    for error in errors_of(train_offline(local)).values():
        assert isinstance(error, DisagreementError)
        assert "ids: the samples of bank are not those of shop" in str(error)


def test_interrupted_training_resumes_with_a_new_preprocessing_run(local: LocalFederation) -> None:
    train_offline(local, handlers=end_after(2))
    done = last_common(local)
    options = f"--samples {N_SAMPLES} --features 3,2 --cuts 7 --done {done}`"
    for name, error in errors_of(train_offline(local)).items():
        assert isinstance(error, CorrelationError)
        assert f"{name}.correlations: No such file" in str(error)
        assert f"{done} tables are done, so ask the dealer for a new dealing" in str(error)
        assert options in str(error)
    preprocess_offline(local)  # from the first table on
    for error in errors_of(train_offline(local)).values():
        assert f"was dealt for tables done: 0, and here it is {done}: " in str(error)
        assert options in str(error)
    for name in NAMES:
        preprocessing_file(local, name).unlink()
    preprocess_offline(local, done)
    moved = preprocessing_file(local, "shop").rename(local.folder / "elsewhere")
    errors = errors_of(train_offline(local))
    assert re.search(r"correlations: dealing \w+ here, dealing none at shop", str(errors["bank"]))
    assert "shop.correlations: No such file" in str(errors["shop"])
    moved.rename(preprocessing_file(local, "shop"))
    reports = [report for report, _ in train_offline(local).checked().values()]
    assert {report.resumed_from for report in reports} == {done}
    assert same_splits(model_of(local), plain_model(local))


def test_signed_manifest_is_validated(local: LocalFederation) -> None:
    job, dealer = Job.read(local.job_path), local.folder / DEALER_NAME
    identity = load_identity(dealer / "dealer.key", dealer / "dealer.crt")
    federation = job.make_training_spec(make_anonymous_features(job, [3, 2]), (7,) * 5)
    program = make_dealer_training_program(federation, federation.make_plan(40), 0, None)
    assert count_preprocessing_bytes(program, job.party_names, identity, {}) > 0
    preprocess(program, job.party_names, dealer, identity, {"samples": "many"})
    shutil.move(dealer / "shop.correlations", preprocessing_file(local, "shop"))
    found = run(local, "train", absent=(DEALER_NAME, "bank"))
    with pytest.raises(CorrelationError, match="says nonsense of what it is for: version"):
        raise found.errors["shop"]
