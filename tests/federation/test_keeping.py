"""Indicators that are kept: a second training on the same rows sends less, and nothing else."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from privet.arithmetic.rings import get_integer_ring
from privet.boosting.binning import bucket_columns
from privet.boosting.cost_estimate import estimate_cost
from privet.cli.app import app
from privet.config.job import Job
from privet.data.frame import Ids
from privet.errors import ModelError, ParameterError
from privet.experiments.local_federation import LocalFederation
from privet.federation.alignment.alignment import compare_ids_on_shares
from privet.runtime.cost import count_program_cost
from privet.storage.indicators import KeptIndicators, Masks, indicator_digest
from privet.storage.model_part import load_part
from tests.federation.harness import Run, change, model_of, prepare, preprocess_offline, rows, run
from tests.federation.test_training import end_after, last_common, plain_model, same_splits

NAMES = ("bank", "telecom", "shop")
CUTS = (7,) * 5
RING = get_integer_ring(35)


@pytest.fixture
def local(tmp_path: Path) -> LocalFederation:
    """Return a federation that has trained once, and kept its indicators."""
    found = prepare(tmp_path, tables=2, names=NAMES)
    change(found.job_path, ("[params]", "keep_indicators = true\n\n[params]"))
    assert kept_by(run(found, "train")) == []
    assert same_splits(model_of(found), plain_model(found))
    return found


def kept_by(found: Run) -> list[str]:
    """Return whose indicators all have used again, if a training went well."""
    found.checked()
    told = [e.fields["owners"] for name in NAMES for e in found.events[name] if e.kind == "kept"]
    assert len(told) == len(NAMES)
    assert all(owners == told[0] for owners in told)
    return list(told[0])


def files(local: LocalFederation, name: str, pattern: str) -> list[Path]:
    return sorted((local.folder / name / "models" / "indicators").glob(pattern))


def names_offered(local: LocalFederation) -> dict[str, str]:
    """Return what every participant calls its indicators."""
    return {name: files(local, name, "*.seed")[0].stem for name in NAMES}


def test_another_training_sends_less(local: LocalFederation) -> None:
    """Another rate, and another label, on the same rows: as the plan says, to the byte."""
    before = names_offered(local)
    change(
        local.job_path, ("tables = 2", "tables = 3"), ("learning_rate = 1.0", "learning_rate = 0.5")
    )
    path = local.folder / "shop" / "train.csv"
    head, *lines = path.read_text().splitlines()
    other = [line[:-3] + ("0.0" if line.endswith("1.0") else "1.0") for line in lines]
    path.write_text("\n".join([head, *other]) + "\n")
    found = run(local, "train", restart=True)
    assert kept_by(found) == list(NAMES)
    assert names_offered(local) == before
    assert same_splits(model_of(local), plain_model(local))
    np.testing.assert_allclose(
        model_of(local).leaf_values, plain_model(local).leaf_values, atol=1e-4
    )
    reports = [found.results[name][0] for name in NAMES]
    federation = Job.read(local.job_path).make_training_spec(
        load_part(local.get_part_path("bank")).part.features, CUTS
    )
    ids = count_program_cost(compare_ids_on_shares, len(NAMES), None)
    new, due = (estimate_cost(federation, federation.make_plan(40, k)) for k in ((), (0, 1, 2)))
    assert {report.rounds for report in reports} == {ids.rounds + due.rounds}
    assert sum(report.bytes_sent for report in reports) == ids.online_bytes + due.online_bytes
    assert (
        sum(report.bytes_from_dealer for report in reports) == ids.offline_bytes + due.offline_bytes
    )
    assert due.rounds == new.rounds - 1
    ring = federation.protocol_type.choose_publication_format(federation.make_plan(40)).ring
    assert new.online_bytes - due.online_bytes == 2 * 5 * ring.count_packed_bytes(7 * 40)
    assert due.offline_bytes == new.offline_bytes
    assert new.online_bytes == estimate_cost(federation, federation.make_plan(40)).online_bytes


def test_lattice_masks(local: LocalFederation) -> None:
    """What was published for uniform masks is not what lattice ones need, and vice versa."""
    before = names_offered(local)
    change(local.job_path, ("[params]", '[params]\nmasks = "lattice"'))
    assert kept_by(run(local, "train", restart=True)) == []
    assert same_splits(model_of(local), plain_model(local))
    lattice = [path for path in files(local, "bank", "*.seed") if path.stem != before["bank"]]
    assert len(lattice) == 1
    found = run(local, "train", restart=True)
    assert kept_by(found) == list(NAMES)
    assert same_splits(model_of(local), plain_model(local))
    federation = Job.read(local.job_path).make_training_spec(
        load_part(local.get_part_path("bank")).part.features, CUTS
    )
    ids = count_program_cost(compare_ids_on_shares, len(NAMES), None)
    due = estimate_cost(federation, federation.make_plan(40, (0, 1, 2)))
    reports = [found.results[name][0] for name in NAMES]
    assert sum(report.bytes_sent for report in reports) == ids.online_bytes + due.online_bytes
    assert (
        sum(report.bytes_from_dealer for report in reports) == ids.offline_bytes + due.offline_bytes
    )
    change(local.job_path, ('masks = "lattice"', 'masks = "uniform"'))
    assert kept_by(run(local, "train", restart=True)) == list(NAMES)
    assert names_offered_by(local, "bank") >= {before["bank"], lattice[0].stem}


def names_offered_by(local: LocalFederation, name: str) -> set[str]:
    return {path.stem for path in files(local, name, "*.seed")}


def test_files_are_their_owner_s_alone(local: LocalFederation) -> None:
    for name, others in (("bank", 3), ("telecom", 3), ("shop", 4)):
        assert len(files(local, name, "*.seed")) == 1
        assert len(files(local, name, "*.indicators")) == others
        for path in files(local, name, "*"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


def change_cell(local: LocalFederation, row: int, column: int, value: str) -> None:
    path = local.folder / "bank" / "train.csv"
    lines = [line.split(",") for line in path.read_text().splitlines()]
    lines[row][column] = value
    path.write_text("\n".join(",".join(line) for line in lines) + "\n")


def test_one_bucket_changed_takes_new_masks(local: LocalFederation) -> None:
    before, seeds = names_offered(local), files(local, "bank", "*.seed")
    old = json.loads(seeds[0].read_text())
    change_cell(local, 1, 1, "99.0")
    assert kept_by(run(local, "train", restart=True)) == ["telecom", "shop"]
    new = [path for path in files(local, "bank", "*.seed") if path.stem != before["bank"]]
    assert len(new) == 1
    found = json.loads(new[0].read_text())
    assert not {old[key] for key in ("name", "digest", "seed")} & set(found.values())
    assert same_splits(model_of(local), plain_model(local))
    # And back again: what was published first is what is needed.
    assert kept_by(run(local, "train", restart=True)) == list(NAMES)


@pytest.mark.parametrize("damage", ["missing", "cut short", "another's", "another feature's"])
def test_a_file_that_is_not_there(local: LocalFederation, damage: str) -> None:
    before = names_offered(local)
    path = files(local, "shop", f"{before['bank']}-*.indicators")[1]
    if damage == "missing":
        path.unlink()
    elif damage == "cut short":
        path.write_bytes(path.read_bytes()[:-9])
    elif damage == "another's":
        path.write_bytes(files(local, "shop", f"{before['telecom']}-*.indicators")[0].read_bytes())
    else:
        path.write_bytes(files(local, "shop", f"{before['bank']}-*.indicators")[0].read_bytes())
    found = run(local, "train", restart=True)
    assert kept_by(found) == ["telecom", "shop"]
    said = [event.text for event in found.events["shop"] if event.kind == "indicators"]
    assert len(said) == 1
    assert said[0].startswith(f"bank publishes its indicators anew: {path}")
    assert names_offered(local)["bank"] != before["bank"]  # under a fresh seed
    assert len(files(local, "bank", "*.seed")) == 1
    assert same_splits(model_of(local), plain_model(local))
    assert kept_by(run(local, "train", restart=True)) == list(NAMES)


def test_a_seed_that_is_lost(local: LocalFederation) -> None:
    files(local, "bank", "*.seed")[0].write_text("{}")
    assert kept_by(run(local, "train", restart=True)) == ["telecom", "shop"]
    assert same_splits(model_of(local), plain_model(local))


def test_a_training_cut_short_publishes_once(tmp_path: Path) -> None:
    local = prepare(tmp_path, names=NAMES)
    change(local.job_path, ("[params]", "keep_indicators = true\n\n[params]"))
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    done = min(last_common(local), 2)
    found = run(local, "train")
    assert kept_by(found) == list(NAMES)
    assert found.results["bank"][0].resumed_from == done
    assert same_splits(model_of(local), plain_model(local))


def test_correlations_dealt_ahead_keep_nothing(local: LocalFederation) -> None:
    preprocess_offline(local)
    found = run(local, "train", restart=True, absent=("dealer",))
    assert kept_by(found) == []
    said = [event.text for event in found.events["bank"] if event.kind == "kept"]
    assert said == ["correlations are dealt ahead: no indicators are kept, or used again"]
    assert same_splits(model_of(local), plain_model(local))


def test_forgetting(local: LocalFederation) -> None:
    party = local.folder / "bank" / "party.toml"
    for count in (4, 0):
        done = CliRunner().invoke(app, ["forget", f"--party={party}"])
        assert (done.exit_code, done.output) == (0, f"{count} files deleted\n")
    assert not (local.folder / "bank" / "models" / "indicators").exists()
    assert kept_by(run(local, "train", restart=True)) == []  # bank lacks all, and all lack bank's


def test_what_cannot_be_kept(tmp_path: Path) -> None:
    job = prepare(tmp_path, protocol="paper").job_path
    change(job, ("[params]", "keep_indicators = true\n\n[params]"))
    with pytest.raises(ParameterError, match="keep_indicators: the protocol paper publishes none"):
        Job.read(job)


def test_an_estimate_with_kept_indicators(local: LocalFederation) -> None:
    size = [f"--job={local.job_path}", "--samples=40", "--features=2,2,1", "--cuts=7", "--json"]
    told = [
        json.loads(CliRunner().invoke(app, ["estimate", *size, *more]).stdout)
        for more in ([], ["--kept"])
    ]
    assert told[1]["rounds"] == told[0]["rounds"] - 1
    assert told[1]["bytes_online"] < told[0]["bytes_online"]
    change(local.job_path, ("keep_indicators = true", ""))
    done = CliRunner().invoke(app, ["estimate", *size, "--kept"])
    assert "the job has no indicators kept" in str(done.exception)


def digest(**changes: Any) -> str:
    frame = rows(1)
    columns = bucket_columns("bank", frame.names, frame.columns, 8)
    if "buckets" in changes:
        columns = replace(columns, buckets=changes.pop("buckets")(columns.buckets.copy()))
    values: dict[str, Any] = {"ids": frame.ids, "cuts": CUTS, "ring": RING, "participants": NAMES}
    return indicator_digest(columns, **{**values, **changes})


def test_masks_are_offered_for_the_same_alone(tmp_path: Path) -> None:
    def one_more(buckets: Any) -> Any:
        buckets[2, 17] ^= 1
        return buckets

    kept, masks = KeptIndicators(tmp_path), Masks.fresh()
    kept.keep(masks, digest())
    assert kept.masks(digest()) == masks
    ids = rows(1).ids
    assert ids is not None
    for other in (
        {"buckets": one_more},
        {"buckets": lambda b: b[:, ::-1]},
        {"ids": Ids.from_texts(ids.tolist()[::-1])},
        {"ids": Ids.from_texts(["x", *ids.tolist()[1:]])},
        {"cuts": (7, 7, 7, 7, 3)},
        {"ring": get_integer_ring(34)},
        {"participants": ("bank", "shop", "telecom")},
        {"participants": ("bank", "shop")},
    ):
        assert digest(**other) != digest()
        assert kept.masks(digest(**other)) is None


@pytest.mark.parametrize("bits", [16, 32, 35, 64])
def test_rows_are_kept_as_they_were_sent(tmp_path: Path, bits: int) -> None:
    ring, kept = get_integer_ring(bits), KeptIndicators(tmp_path)
    rng = np.random.default_rng(0)
    name = Masks.fresh().name
    for position, shape in enumerate(((7, 13), (0, 13), (1, 1))):
        sent = rng.integers(0, 1 << 63, size=shape, dtype=np.uint64).astype(ring.dtype)
        kept.save(name, position, sent, ring)
        assert np.array_equal(kept.load(name, position, shape, ring), ring.reduce_modulus(sent))
    for wrong in ((name, 3, (7, 13), ring), (name, 0, (8, 13), ring), (name, 2, (7, 13), ring)):
        with pytest.raises(ModelError):
            kept.load(*wrong)
