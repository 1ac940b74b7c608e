"""Members on different CPUs: the libraries of each member detect another kind of processor.

OpenBLAS and numpy choose kernels by the detected processor, and can be set to use those of an older
one. Floating-point results then differ in their last bits, as they do between real machines.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from privet.experiments.local_federation import (
    DEFAULT_PARTY_NAMES,
    CompletedProcess,
    LocalFederation,
)
from privet.runtime.local.launcher import PROCESS_ENVIRONMENT
from tests.federation.harness import model_of, prepare
from tests.federation.test_training import plain_model, same_splits

_umath = import_module("numpy._core._multiarray_umath")
features: dict[str, bool] = _umath.__cpu_features__
CPU_FEATURES = [name for name in _umath.__cpu_dispatch__ if features.get(name)]
"""CPU features that numpy uses on this processor, from the oldest to the newest."""
_PRODUCTS = """
import numpy as np
for shape in ((24, 512, 8), (24, 4096, 64), (200, 4096, 200)):
    np.ones(shape[:2]) @ np.ones(shape[1:])
"""


@lru_cache
def select_kernel(name: str) -> dict[str, str]:
    """Return the environment that selects an OpenBLAS kernel, if that kernel works here.

    Some releases crash with kernels of other processors than the one that they run on.
    """
    selection = {"OPENBLAS_CORETYPE": name}
    for threads in ("1", "2"):
        environment = {**os.environ, **selection, "OPENBLAS_NUM_THREADS": threads}
        process = subprocess.run(  # noqa: S603
            [sys.executable, "-c", _PRODUCTS], env=environment, capture_output=True, check=False
        )
        if process.returncode:
            return {}
    return selection


def make_environments() -> dict[str, dict[str, str]]:
    """Return the environment of each role."""
    widest = "SkylakeX" if features.get("AVX512F") else "Haswell"
    return {
        "bank": {**select_kernel("Nehalem"), "NPY_DISABLE_CPU_FEATURES": " ".join(CPU_FEATURES)},
        "telecom": {
            **select_kernel("Haswell"),
            "NPY_DISABLE_CPU_FEATURES": " ".join(CPU_FEATURES[1:]),
        },
        "shop": {**select_kernel(widest), "OPENBLAS_NUM_THREADS": "3"},
        "dealer": {**select_kernel("Zen"), "OPENBLAS_NUM_THREADS": "2"},
    }


pytestmark = pytest.mark.skipif(
    not features.get("AVX2"), reason="this processor cannot emulate others: NOT tested"
)


def train(local: LocalFederation, module: str = "privet") -> dict[str, CompletedProcess]:
    """Train with a different environment for each role."""

    def role(name: str) -> CompletedProcess:
        python, option, _, *arguments = local.make_command(name, "train")
        process = subprocess.run(  # noqa: S603
            [python, option, module, *arguments],
            env={**PROCESS_ENVIRONMENT, **os.environ, **environments[name]},
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return CompletedProcess(process.returncode, process.stdout, process.stderr)

    environments = make_environments()
    with ThreadPoolExecutor(len(environments)) as pool:
        return dict(zip(environments, pool.map(role, environments), strict=True))


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_different_cpus_train_the_reference_model(tmp_path: Path, task: str) -> None:
    local = prepare(tmp_path, tables=4, names=DEFAULT_PARTY_NAMES, task=task)
    processes = train(local)
    assert {name: process.return_code for name, process in processes.items()} == dict.fromkeys(
        processes, 0
    ), processes
    model, plain = model_of(local), plain_model(local)
    assert same_splits(model, plain)
    np.testing.assert_allclose(model.leaf_values, plain.leaf_values, atol=1e-4)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_floating_point_numbers_are_rejected(tmp_path: Path, task: str) -> None:
    """The control: the factors of shares differ between participants, who detect it."""
    local = prepare(tmp_path, tables=1, names=DEFAULT_PARTY_NAMES, task=task)
    processes = train(local, "tests.floating_numbers")
    for name, process in processes.items():
        assert process.return_code == 9, (name, process)
        assert "numbers of the reciprocal: " in process.stderr
        assert "train noise" in process.stderr
    assert not any(local.get_part_path(name).exists() for name in DEFAULT_PARTY_NAMES)
