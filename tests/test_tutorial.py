"""The commands of the tutorial, run in order, and in parallel where it says so."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path

from manual.blocks import LANGUAGES, iter_blocks
from sklearn.metrics import roc_auc_score

from privet import Model, load_model
from privet.boosting.model_part import join_parts
from privet.data.reader import read_frame
from privet.experiments.local_federation import find_free_ports
from privet.runtime.local.launcher import PROCESS_ENVIRONMENT
from privet.storage.model_part import load_part

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"


def test_the_tutorial(tmp_path: Path) -> None:
    text = TUTORIAL.read_text()
    for number, port in enumerate(find_free_ports(4)):
        text = text.replace(f":740{number}", f":{port}")
    blocks = [block for block in iter_blocks(text) if block.language in LANGUAGES]
    local_blocks = [block for block in blocks if block.not_run is None and block.run_by is None]
    environment = {**PROCESS_ENVIRONMENT, **os.environ}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    folder, n_parallel_groups = tmp_path, 0
    for in_parallel, group in groupby(local_blocks, key=lambda block: bool(block.runner)):
        commands = [block.script for block in group]
        if not in_parallel:
            commands = ["".join(commands)]
        n_parallel_groups += in_parallel
        processes = [
            subprocess.Popen(  # noqa: S603
                ["/bin/sh", "-ec", command],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for command in commands
        ]
        for process, command in zip(processes, commands, strict=True):
            output, _ = process.communicate(timeout=100)
            assert process.returncode == 0, f"{command}\n{output}"
        folder = tmp_path / "federation"
    assert n_parallel_groups == 3
    names = ("bank", "telecom", "shop")
    model = join_parts([load_part(folder / n / "models" / "diagnosis.part").part for n in names])
    assert model.n_tables == 10
    exported = load_model(folder / "model.json")
    assert isinstance(exported, Model)
    assert exported.n_tables == 10
    predicted = read_frame(folder / "predictions.csv", id="id")
    truth = read_frame(folder / "shop" / "truth.csv", id="id")
    assert predicted.ids is not None
    assert truth.ids is not None
    assert predicted.ids.tolist() == truth.ids.tolist()
    assert roc_auc_score(truth.columns[0], predicted.columns[-1]) > 0.99
