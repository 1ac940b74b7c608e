"""The tutorial's commands, run as its reader would: in order, and side by side where it says so."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path

from manual.blocks import LANGUAGES, blocks
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
    typed = [block for block in blocks(text) if block.language in LANGUAGES]
    here = [block for block in typed if block.not_run is None and block.run_by is None]
    environment = {**PROCESS_ENVIRONMENT, **os.environ}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    folder, groups = tmp_path, 0
    for side_by_side, group in groupby(here, key=lambda block: bool(block.who)):
        commands = [block.script for block in group]
        if not side_by_side:
            commands = ["".join(commands)]
        groups += side_by_side
        running = [
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
        for process, command in zip(running, commands, strict=True):
            said, _ = process.communicate(timeout=100)
            assert process.returncode == 0, f"{command}\n{said}"
        folder = tmp_path / "federation"
    assert groups == 3
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
