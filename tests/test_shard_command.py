"""`privet shard` as people run it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pytest

from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.errors import DataError
from privet.experiments.local_federation import LocalFederation
from privet.federation.local_data import LocalTable
from privet.runtime.run import DEALER_NAME
from tests.federation.harness import NAMES, align, change, model_of, prepare
from tests.federation.test_alignment import plain_model
from tests.federation.test_training import same_tests
from tests.test_align_command import privet as at_all
from tests.test_cli import privet


def shard(local: LocalFederation, name: str, count: int) -> str:
    """Write a participant's table anew, and have it used, as the command says."""
    folder = local.folder / name
    command = f"shard --party={folder}/party.toml --job={local.job_path} --shards={count}"
    done = privet(*command.split(), "--out=by shard", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = (line.strip() for line in done.stdout.splitlines() if line.startswith("    "))
    change(folder / "party.toml", ('path = "train.csv"', line))
    return done.stdout


def own(local: LocalFederation, name: str) -> PartyConfig:
    return PartyConfig.load(local.folder / name / "party.toml")


def digest(local: LocalFederation, name: str) -> str:
    """Return what tells a participant's data from others, as a training goes on or does not."""
    found = LocalTable.read(
        own(local, name), Job.read(local.job_path), restart=False
    ).load_local_state()
    assert found is not None
    return found.data_digest


def test_rows_as_they_stand(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    job = Job.read(local.job_path)
    before, data = own(local, "bank").read_rows(job).collect(), digest(local, "bank")
    said = shard(local, "bank", 3)
    folder = tmp_path / "bank" / "by shard"
    assert said == (
        f"3 files in by shard; in {tmp_path}/bank/party.toml, under [data], say\n\n"
        f'    path = "{folder}"\n\n'
    )
    assert [path.name for path in sorted(folder.iterdir())] == [
        *("00000-of-00003.parquet", "00001-of-00003.parquet", "00002-of-00003.parquet")
    ]
    after = own(local, "bank").read_rows(job).collect()
    assert after.names == before.names
    np.testing.assert_array_equal(after.columns, before.columns)
    assert after.ids is not None
    assert before.ids is not None
    assert after.ids.tolist() == before.ids.tolist()
    assert digest(local, "bank") == data
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_rows_as_they_are_aligned(tmp_path: Path) -> None:
    """The others need not know: the alignment is the same to them."""
    local = prepare(tmp_path, tables=2)
    align(local)
    expected = plain_model(local)
    party, job = tmp_path / "bank" / "party.toml", local.job_path
    done = privet("shard", f"--party={party}", f"--job={job}", f"--out={tmp_path}/out")
    assert (done.returncode, done.stdout) == (4, "")
    assert "its rows are not aligned for the job 'rehearsal'" in done.stderr
    dealer = local.start_process(DEALER_NAME, "train", "--keep", "--log-format=json")
    try:
        found = at_all(local, "align", "--out=HERE/in.csv")
        assert {code for code, _ in found.values()} == {0}, found
        data = digest(local, "bank")
        shard(local, "bank", 4)
        assert digest(local, "bank") == data
        ids = own(local, "bank").read_ids(Job.read(job))
        assert ids.tolist() == (tmp_path / "bank" / "in.csv").read_text().splitlines()[1:]
        found = at_all(local, "train", "--report=HERE/report.json")
        assert {code for code, _ in found.values()} == {0}, found
        for name in NAMES:
            report = json.loads((tmp_path / name / "report.json").read_text())
            assert report["alignment"]["used_again"]
        assert same_tests(model_of(local), expected)
    finally:
        dealer.kill()
        dealer.communicate()


@pytest.mark.parametrize("aligns", [False, True])
def test_an_id_twice_is_refused(tmp_path: Path, aligns: bool) -> None:
    """As a training does, and before anything is written."""
    local = prepare(tmp_path)
    if aligns:
        align(local)
    table = tmp_path / "bank" / "train.csv"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join([*lines, lines[3]]))
    with pytest.raises(DataError) as caught:
        LocalTable.read(own(local, "bank"), Job.read(local.job_path), restart=False)
    command = (
        f"shard --party={tmp_path}/bank/party.toml --job={local.job_path} --out={tmp_path}/bank/new"
    )
    before = sorted(path.name for path in table.parent.iterdir())
    done = privet(*command.split())
    assert (done.returncode, done.stdout) == (4, "")
    assert "1 id is there more than once: " in done.stderr
    assert f"the first in rows 3 and {len(lines)}: keep one row of each" in done.stderr
    assert str(caught.value) in done.stderr
    left = {path.name for path in table.parent.iterdir()} - {*before, "models"}
    assert not left


def test_what_to_leave_out(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    party = tmp_path / "shop" / "party.toml"
    (tmp_path / "shop" / "train.csv").write_text("id;a;b;c;label\n1;x;2;3;0\n2;y;4;5;1\n")
    more = 'drop = ["b", "lab*"]\nseparator = ";"\nencoding = "latin-1"\n'
    party.write_text(party.read_text() + more + 'types = { b = "number", a = "one-hot" }\n')
    done = privet("shard", f"--party={party}", f"--job={local.job_path}", f"--out={tmp_path}/out")
    assert done.stdout == (
        f"1 file in {tmp_path}/out; in {party}, under [data], say\n\n"
        f'    path = "{tmp_path}/out"\n    drop = ["lab*"]\n    types = {{ "a" = "one-hot" }}\n\n'
        "and leave out what the new table has no use for: separator, encoding\n"
    )
    again = privet("shard", f"--party={party}", f"--job={local.job_path}", f"--out={tmp_path}/out")
    assert again.returncode == 6
    assert "is there already; give the name of a new folder" in again.stderr
