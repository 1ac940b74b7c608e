"""The examples of docs/development.md for a new gate, objective and protocol work."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from privet import Experiment, ParameterError, run, simulate
from privet.arithmetic.rings import Z64
from privet.boosting.training import PROTOCOL_TYPES
from privet.objectives.regression import OBJECTIVES
from privet.runtime.cost import count_program_cost
from privet.runtime.runtime import Runtime
from tests.runtime.harness import check_count, play

PAGE = Path(__file__).parents[1] / "docs" / "development.md"
IMPORTS = {
    "gate": """
from privet.arithmetic.shares import Share
from privet.gates.gate import Gate
from privet.runtime.cost import CostCounter
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.correlations.correlation import BilinearProduct
""",
    "objective": """
from privet.arrays import FloatArray
from privet.objectives.regression import OBJECTIVES
from privet.objectives.classification import Classification
""",
    "suite": """
from privet.boosting.training import PROTOCOL_TYPES
from privet.errors import ParameterError
from privet.protocols.masked.protocol import MaskedProtocol
from privet.spec.plan import Plan
""",
}


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Write a package with the examples of the page, and import it."""
    page = PAGE.read_text()
    package = tmp_path / "ours"
    package.mkdir()
    for kind, imports in IMPORTS.items():
        (code,) = re.findall(rf"```python {kind}\n(.*?)```", page, re.DOTALL)
        (package / f"{kind}.py").write_text(
            f"from __future__ import annotations\n{imports}\n{code}"
        )
    names = [f"from ours import {kind}\n" for kind in IMPORTS]
    (package / "__init__.py").write_text("".join(names))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("ours")
    OBJECTIVES.pop("doubtful")
    PROTOCOL_TYPES.pop("shallow")
    for name in [name for name in sys.modules if name.partition(".")[0] == "ours"]:
        del sys.modules[name]


def test_a_gate(examples: ModuleType) -> None:
    cube = examples.gate.Cube()
    values = np.arange(-5, 6).astype(np.uint64)

    def program(runtime: Runtime, local: np.ndarray | None) -> object:
        shared = runtime.share(local, 0, values.shape, Z64)
        return runtime.reveal(cube(runtime, shared), [0], "cubes")

    outcome = simulate(program, 3, [values, None, None])
    assert outcome.results[0].astype(np.int64).tolist() == [x**3 for x in range(-5, 6)]
    views = play(program, 3, [values, None, None])
    check_count(program, views)
    assert count_program_cost(program, 3, None).offline_bytes == 2 * 8 * len(values)


def test_an_objective_and_a_suite(examples: ModuleType, tmp_path: Path) -> None:
    assert examples.objective.Doubtful.name in OBJECTIVES
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(60, 4))
    label = columns[:, 0] + columns[:, 2] > 0
    table = tmp_path / "table.csv"
    lines = [",".join(map(str, (*row, int(y)))) for row, y in zip(columns, label, strict=True)]
    table.write_text("\n".join(["a,b,c,d,label", *lines]))

    def experiment(depth: int) -> Experiment:
        return Experiment(
            data=str(table),
            n_parties=2,
            protocol="shallow",
            network="memory",
            task="doubtful",
            params={"tables": 2, "depth": depth},
        )

    model, report = run(experiment(2))
    assert (model.task, report.protocol) == ("doubtful", "shallow")
    assert report.same_tests == 1.0
    assert report.metrics["accuracy"] is not None
    with pytest.raises(ParameterError, match="depth: shallow takes 1 or 2, not 3"):
        run(experiment(3))
