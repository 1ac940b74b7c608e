"""Trainings with correlations that were dealt ahead, and no dealer."""

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
    deal_for,
    file_of,
    model_of,
    prepare,
    run,
)
from tests.federation.test_training import end_after, last_common, plain_model, same_tests


def train_ahead(local: LocalFederation, **options: object) -> Run:
    return run(local, "train", absent=(DEALER_NAME,), **options)  # type: ignore[arg-type]


def complaints(found: Run) -> dict[str, PrivetError]:
    """Return what everybody complains of; nobody may have got through."""
    assert not found.results
    assert all(isinstance(error, PrivetError) for error in found.errors.values()), found.errors
    return found.errors  # type: ignore[return-value]


@pytest.fixture
def local(tmp_path: Path) -> LocalFederation:
    """A federation whose dealer has dealt ahead, and gone."""
    local = prepare(tmp_path)
    deal_for(local)
    return local


@pytest.mark.parametrize("names", [NAMES, ("bank", "telecom", "shop")])
@pytest.mark.parametrize("protocol", ["masked", "paper"])
def test_a_training_is_what_it_is_with_a_dealer(
    tmp_path: Path, names: tuple[str, ...], protocol: str
) -> None:
    ahead = prepare(tmp_path / "ahead", tables=2, names=names, protocol=protocol)
    deal_for(ahead)
    for name in names:
        assert stat.S_IMODE(file_of(ahead, name).stat().st_mode) == 0o600
    reports = [report for report, _ in train_ahead(ahead).checked().values()]
    live = prepare(tmp_path / "live", tables=2, names=names, protocol=protocol)
    found = run(live, "train").checked()
    same = [found[name][0] for name in names]
    assert same_tests(model_of(ahead), model_of(live))
    # Rounding depends on the shares: of a leaf value's 16 fraction bits, the last ones differ.
    apart = 2**-14 if protocol == "masked" else 2**-10
    np.testing.assert_allclose(
        model_of(ahead).leaf_values, model_of(live).leaf_values, rtol=0, atol=apart
    )
    if protocol == "masked":
        assert same_tests(model_of(ahead), plain_model(ahead))
    for key in ("rounds", "bytes_sent", "bytes_received", "reveals"):
        assert sorted(str(getattr(r, key)) for r in reports) == sorted(
            str(getattr(r, key)) for r in same
        )
    dealt = [sum(report.bytes_from_dealer for report in each) for each in (reports, same)]
    assert dealt[0] == dealt[1] > 0
    assert {report.correlations for report in reports} == {"ahead"}
    # The files are gone, and the model serves predictions with a dealer.
    assert not any(file_of(ahead, name).exists() for name in names)
    run(ahead, "predict").checked()


@pytest.mark.parametrize("protocol", ["masked", "paper"])
@pytest.mark.parametrize("done", [0, 2])
def test_the_room_is_known_to_the_byte(tmp_path: Path, protocol: str, done: int) -> None:
    local = prepare(tmp_path, protocol=protocol, names=("bank", "telecom", "shop"))
    job, told = Job.read(local.job_path), list[Event]()
    dealer = local.folder / DEALER_NAME
    identity = load_identity(dealer / "dealer.key", dealer / "dealer.crt")
    federation = job.make_training_spec(make_anonymous_features(job, [2, 2, 1]))
    paths = generate_preprocessing_files(
        job, federation, identity, dealer / "dealt", 40, done, told.append
    )
    taken = sum(path.stat().st_size for path in paths)
    assert (told[0].kind, told[0].fields["bytes"]) == ("room", taken)
    assert f"{taken:,} bytes" in told[0].text
    assert [event.fields["table"] for event in told[1:]] == list(range(done + 1, 4))


def test_too_little_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = prepare(tmp_path)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(UnavailableError, match=r"0 MB are free and .* MB are needed; make"):
        deal_for(local)
    assert not list((local.folder / DEALER_NAME / "dealt").iterdir())


def test_a_file_is_used_once(local: LocalFederation) -> None:
    copies = {name: file_of(local, name).read_bytes() for name in NAMES}
    train_ahead(local).checked()
    for name in NAMES:
        assert len(list((local.get_part_path(name).parent / USED_SEEDS_FOLDER).iterdir())) == 1
        other = file_of(local, name).with_name("a copy")
        other.write_bytes(copies[name])
        change(local.folder / name / "party.toml", (f"{name}.correlations", "a copy"))
    for name, error in complaints(train_ahead(local, restart=True)).items():
        assert isinstance(error, CorrelationError)
        assert re.search(r"a copy: was used before, under this or another name", str(error)), name
        assert "ask the dealer for a new dealing" in str(error)
    # What was trained to its end takes no correlations, whatever lies there.
    assert {r.rounds for r, _ in train_ahead(local).checked().values()} == {0}


def test_a_missing_file(local: LocalFederation) -> None:
    file_of(local, "shop").unlink()
    found = run(local, "train", absent=(DEALER_NAME, "bank"))
    with pytest.raises(CorrelationError, match=r"shop\.correlations: No such file .* put the deal"):
        raise found.errors["shop"]


def test_anothers_file(local: LocalFederation) -> None:
    file_of(local, "shop").write_bytes(file_of(local, "bank").read_bytes())
    found = run(local, "train", absent=(DEALER_NAME, "bank"))
    with pytest.raises(CorrelationError, match=r"shop\.correlations: is for bank, not for shop"):
        raise found.errors["shop"]
    assert file_of(local, "shop").exists()


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_file(local: LocalFederation, damage: str) -> None:
    path = file_of(local, "shop")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(path.read_bytes()[:-1] if damage == "cut" else content)
    found = run(local, "train", absent=(DEALER_NAME, "bank"))
    with pytest.raises(CorrelationError, match=r"shop\.correlations: was cut short or changed"):
        raise found.errors["shop"]


def test_a_file_of_a_dealer_that_the_job_does_not_name(local: LocalFederation) -> None:
    """The job's dealer has another key by now, or somebody else dealt."""
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
def test_a_file_of_another_job(local: LocalFederation, old: str, new: str, complaint: str) -> None:
    change(local.job_path, (old, new))
    for name, error in complaints(train_ahead(local)).items():
        assert f"{name}.correlations: {complaint}" in str(error)
        assert file_of(local, name).exists()


def test_a_file_of_another_version(local: LocalFederation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privet.federation.offline.__version__", "99.0")
    for name, error in complaints(train_ahead(local)).items():
        assert re.search(
            rf"{name}\.correlations: .* the version: .*, and here it is 99\.0", str(error)
        )


def test_a_file_for_other_numbers_of_samples_and_features(local: LocalFederation) -> None:
    change(local.folder / "bank" / "party.toml", ('id = "id"', 'id = "id"\ncolumns = ["a"]'))
    found = run(local, "train", absent=(DEALER_NAME, "shop"))
    with pytest.raises(CorrelationError, match=r"features of the participants: \[3, 2\].*\[1, 2\]"):
        raise found.errors["bank"]
    data = local.folder / "shop" / "train.csv"
    data.write_text("".join(data.read_text().splitlines(keepends=True)[:-1]))
    found = run(local, "train", absent=(DEALER_NAME, "bank"))
    with pytest.raises(CorrelationError, match="was dealt for samples: 40, and here it is 39"):
        raise found.errors["shop"]


def test_files_of_two_dealings_are_told_apart_by_all(local: LocalFederation) -> None:
    first = file_of(local, "bank").read_bytes()
    deal_for(local)
    file_of(local, "bank").write_bytes(first)
    errors = complaints(train_ahead(local))
    for name, error in errors.items():
        other = "shop" if name == "bank" else "bank"
        assert isinstance(error, DisagreementError)
        assert re.search(rf"correlations: dealing \w+ here, dealing \w+ at {other}: ", str(error))
        assert (
            "privet dealer --job job.toml --ahead FOLDER --samples 40 --features 3,2 --cuts 7`"
            in str(error)
        )
        assert (error.peer, error.step) == (other, "agreement")
        assert file_of(local, name).exists()  # nobody has used anything


def test_all_use_files_or_nobody(local: LocalFederation) -> None:
    """Who counts on the dealer is not kept waiting for it by those who do not."""
    change(local.folder / "shop" / "party.toml", ('correlations = "shop.correlations"\n', ""))
    found = run(local, "train", absent=(DEALER_NAME,), wait=15.0)
    for error in found.errors.values():
        assert isinstance(error, PeerLostError)
        assert "has its correlations another way" in str(error)
    assert file_of(local, "bank").exists()


def test_a_dealer_with_other_numbers(
    local: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine computed differently: found by what it wrote on the files' covers."""
    for name in NAMES:
        file_of(local, name).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(
            "privet.federation.session.public_constants.run_self_test", lambda: {"sines": "others"}
        )
        deal_for(local)
    for name, error in complaints(train_ahead(local)).items():
        assert isinstance(error, CorrelationError)
        assert "was dealt with other numbers of this machine's" in str(error)
        assert "train noise" in str(error)
        assert file_of(local, name).exists()


def test_ids_are_compared_without_a_dealer(local: LocalFederation) -> None:
    data = local.folder / "bank" / "train.csv"
    head, first, second, *rest = data.read_text().splitlines(keepends=True)
    data.write_text("".join([head, second, first, *rest]))
    for error in complaints(train_ahead(local)).values():
        assert isinstance(error, DisagreementError)
        assert "ids: the samples of bank are not those of shop" in str(error)


def test_a_training_cut_short_goes_on_with_a_new_dealing(local: LocalFederation) -> None:
    train_ahead(local, tells=end_after(2))
    done = last_common(local)
    order = f"--samples {N_SAMPLES} --features 3,2 --cuts 7 --done {done}`"
    for name, error in complaints(train_ahead(local)).items():
        assert isinstance(error, CorrelationError)
        assert f"{name}.correlations: No such file" in str(error)
        assert f"{done} tables are done, so ask the dealer for a new dealing" in str(error)
        assert order in str(error)
    deal_for(local)  # from the first table on
    for error in complaints(train_ahead(local)).values():
        assert f"was dealt for tables done: 0, and here it is {done}: " in str(error)
        assert order in str(error)
    for name in NAMES:
        file_of(local, name).unlink()
    deal_for(local, done)
    lost = file_of(local, "shop").rename(local.folder / "elsewhere")
    errors = complaints(train_ahead(local))
    assert re.search(r"correlations: dealing \w+ here, dealing none at shop", str(errors["bank"]))
    assert "shop.correlations: No such file" in str(errors["shop"])
    lost.rename(file_of(local, "shop"))
    reports = [report for report, _ in train_ahead(local).checked().values()]
    assert {report.resumed_from for report in reports} == {done}
    assert same_tests(model_of(local), plain_model(local))


def test_what_a_dealing_says_is_checked_even_if_signed(local: LocalFederation) -> None:
    job, dealer = Job.read(local.job_path), local.folder / DEALER_NAME
    identity = load_identity(dealer / "dealer.key", dealer / "dealer.crt")
    federation = job.make_training_spec(make_anonymous_features(job, [3, 2]), (7,) * 5)
    program = make_dealer_training_program(federation, federation.make_plan(40), 0, None)
    assert count_preprocessing_bytes(program, job.party_names, identity, {}) > 0
    preprocess(program, job.party_names, dealer, identity, {"samples": "many"})
    shutil.move(dealer / "shop.correlations", file_of(local, "shop"))
    found = run(local, "train", absent=(DEALER_NAME, "bank"))
    with pytest.raises(CorrelationError, match="says nonsense of what it is for: version"):
        raise found.errors["shop"]
