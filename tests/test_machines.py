"""Participants on unlike machines: to the libraries, every role has its own kind of processor.

OpenBLAS and numpy choose their kernels by the processor that they find, and can be told to see a
lesser one. Floating-point results then differ in their last bits, as they do between real machines.
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
from tests.federation.test_training import plain_model, same_tests

_umath = import_module("numpy._core._multiarray_umath")
features: dict[str, bool] = _umath.__cpu_features__
HERE = [name for name in _umath.__cpu_dispatch__ if features.get(name)]
"""What numpy would use of this processor, from the oldest to the newest."""
_PRODUCTS = """
import numpy as np
for shape in ((24, 512, 8), (24, 4096, 64), (200, 4096, 200)):
    np.ones(shape[:2]) @ np.ones(shape[1:])
"""


@lru_cache
def kernel(name: str) -> dict[str, str]:
    """Return how to ask OpenBLAS for a processor's kernel, if those work here at all.

    Some releases crash with kernels of other processors than the one that they run on.
    """
    asked = {"OPENBLAS_CORETYPE": name}
    for threads in ("1", "2"):
        environment = {**os.environ, **asked, "OPENBLAS_NUM_THREADS": threads}
        ended = subprocess.run(  # noqa: S603
            [sys.executable, "-c", _PRODUCTS], env=environment, capture_output=True, check=False
        )
        if ended.returncode:
            return {}
    return asked


def machines() -> dict[str, dict[str, str]]:
    """Return every role's own kind of machine."""
    widest = "SkylakeX" if features.get("AVX512F") else "Haswell"
    return {
        "bank": {**kernel("Nehalem"), "NPY_DISABLE_CPU_FEATURES": " ".join(HERE)},
        "telecom": {**kernel("Haswell"), "NPY_DISABLE_CPU_FEATURES": " ".join(HERE[1:])},
        "shop": {**kernel(widest), "OPENBLAS_NUM_THREADS": "3"},
        "dealer": {**kernel("Zen"), "OPENBLAS_NUM_THREADS": "2"},
    }


pytestmark = pytest.mark.skipif(
    not features.get("AVX2"), reason="no processor that can play several: NOT tested"
)


def train(local: LocalFederation, module: str = "privet") -> dict[str, CompletedProcess]:
    """Train with every role on its own kind of machine."""

    def role(name: str) -> CompletedProcess:
        python, option, _, *arguments = local.make_command(name, "train")
        ended = subprocess.run(  # noqa: S603
            [python, option, module, *arguments],
            env={**PROCESS_ENVIRONMENT, **os.environ, **kinds[name]},
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return CompletedProcess(ended.returncode, ended.stdout, ended.stderr)

    kinds = machines()
    with ThreadPoolExecutor(len(kinds)) as pool:
        return dict(zip(kinds, pool.map(role, kinds), strict=True))


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_unlike_machines_train_the_reference_s_model(tmp_path: Path, task: str) -> None:
    local = prepare(tmp_path, tables=4, names=DEFAULT_PARTY_NAMES, task=task)
    ended = train(local)
    assert {name: end.return_code for name, end in ended.items()} == dict.fromkeys(ended, 0), ended
    model, plain = model_of(local), plain_model(local)
    assert same_tests(model, plain)
    np.testing.assert_allclose(model.leaf_values, plain.leaf_values, atol=1e-4)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_numbers_by_floating_point_are_refused(tmp_path: Path, task: str) -> None:
    """The control: what participants would multiply shares with differs, and they find out."""
    local = prepare(tmp_path, tables=1, names=DEFAULT_PARTY_NAMES, task=task)
    ended = train(local, "tests.floating_numbers")
    for name, end in ended.items():
        assert end.return_code == 9, (name, end)
        assert "numbers of the reciprocal: " in end.stderr
        assert "train noise" in end.stderr
    assert not any(local.get_part_path(name).exists() for name in DEFAULT_PARTY_NAMES)
