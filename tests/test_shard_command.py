"""The command `privet shard`."""

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
from tests.federation.test_training import same_splits
from tests.test_align_command import privet as run_at_participants
from tests.test_cli import privet


def shard(local: LocalFederation, name: str, count: int) -> str:
    """Shard a participant's table, and set the new path as the command prints it."""
    folder = local.folder / name
    command = f"shard --party={folder}/party.toml --job={local.job_path} --shards={count}"
    result = privet(*command.split(), "--out=by shard", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    (line,) = (line.strip() for line in result.stdout.splitlines() if line.startswith("    "))
    change(folder / "party.toml", ('path = "train.csv"', line))
    return result.stdout


def load_party(local: LocalFederation, name: str) -> PartyConfig:
    return PartyConfig.load(local.folder / name / "party.toml")


def digest(local: LocalFederation, name: str) -> str:
    """Return the digest of a participant's data, which a resumed training run compares."""
    found = LocalTable.read(
        load_party(local, name), Job.read(local.job_path), restart=False
    ).load_local_state()
    assert found is not None
    return found.data_digest


def test_shards_keep_the_row_order(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    job = Job.read(local.job_path)
    before, data = load_party(local, "bank").read_rows(job).collect(), digest(local, "bank")
    output = shard(local, "bank", 3)
    folder = tmp_path / "bank" / "by shard"
    assert output == (
        f"3 files in by shard; in {tmp_path}/bank/party.toml, under [data], say\n\n"
        f'    path = "{folder}"\n\n'
    )
    assert [path.name for path in sorted(folder.iterdir())] == [
        *("00000-of-00003.parquet", "00001-of-00003.parquet", "00002-of-00003.parquet")
    ]
    after = load_party(local, "bank").read_rows(job).collect()
    assert after.names == before.names
    np.testing.assert_array_equal(after.columns, before.columns)
    assert after.ids is not None
    assert before.ids is not None
    assert after.ids.tolist() == before.ids.tolist()
    assert digest(local, "bank") == data
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_shards_of_aligned_rows(tmp_path: Path) -> None:
    """The alignment stays the same for the other participants."""
    local = prepare(tmp_path, tables=2)
    align(local)
    expected = plain_model(local)
    party, job = tmp_path / "bank" / "party.toml", local.job_path
    result = privet("shard", f"--party={party}", f"--job={job}", f"--out={tmp_path}/out")
    assert (result.returncode, result.stdout) == (4, "")
    assert "its rows are not aligned for the job 'rehearsal'" in result.stderr
    dealer = local.start_process(DEALER_NAME, "train", "--keep", "--log-format=json")
    try:
        found = run_at_participants(local, "align", "--out=HERE/in.csv")
        assert {code for code, _ in found.values()} == {0}, found
        data = digest(local, "bank")
        shard(local, "bank", 4)
        assert digest(local, "bank") == data
        ids = load_party(local, "bank").read_ids(Job.read(job))
        assert ids.tolist() == (tmp_path / "bank" / "in.csv").read_text().splitlines()[1:]
        found = run_at_participants(local, "train", "--report=HERE/report.json")
        assert {code for code, _ in found.values()} == {0}, found
        for name in NAMES:
            report = json.loads((tmp_path / name / "report.json").read_text())
            assert report["alignment"]["used_again"]
        assert same_splits(model_of(local), expected)
    finally:
        dealer.kill()
        dealer.communicate()


@pytest.mark.parametrize("aligns", [False, True])
def test_duplicate_id_is_rejected(tmp_path: Path, aligns: bool) -> None:
    """The error is that of training, and nothing is written."""
    local = prepare(tmp_path)
    if aligns:
        align(local)
    table = tmp_path / "bank" / "train.csv"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join([*lines, lines[3]]))
    with pytest.raises(DataError) as caught:
        LocalTable.read(load_party(local, "bank"), Job.read(local.job_path), restart=False)
    command = (
        f"shard --party={tmp_path}/bank/party.toml --job={local.job_path} --out={tmp_path}/bank/new"
    )
    before = sorted(path.name for path in table.parent.iterdir())
    result = privet(*command.split())
    assert (result.returncode, result.stdout) == (4, "")
    assert "1 id is there more than once: " in result.stderr
    assert f"the first in rows 3 and {len(lines)}: keep one row of each" in result.stderr
    assert str(caught.value) in result.stderr
    left = {path.name for path in table.parent.iterdir()} - {*before, "models"}
    assert not left


def test_obsolete_settings_are_listed(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    party = tmp_path / "shop" / "party.toml"
    (tmp_path / "shop" / "train.csv").write_text("id;a;b;c;label\n1;x;2;3;0\n2;y;4;5;1\n")
    more = 'drop = ["b", "lab*"]\nseparator = ";"\nencoding = "latin-1"\n'
    party.write_text(party.read_text() + more + 'types = { b = "number", a = "one-hot" }\n')
    result = privet("shard", f"--party={party}", f"--job={local.job_path}", f"--out={tmp_path}/out")
    assert result.stdout == (
        f"1 file in {tmp_path}/out; in {party}, under [data], say\n\n"
        f'    path = "{tmp_path}/out"\n    drop = ["lab*"]\n    types = {{ "a" = "one-hot" }}\n\n'
        "and leave out what the new table has no use for: separator, encoding\n"
    )
    again = privet("shard", f"--party={party}", f"--job={local.job_path}", f"--out={tmp_path}/out")
    assert again.returncode == 6
    assert "is there already; give the name of a new folder" in again.stderr
