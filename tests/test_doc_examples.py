"""The Python examples in the docs run; docs are wrapped and have valid links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

ROOT = Path(__file__).parent.parent


def find_examples(document: str) -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE
    )


def test_the_secure_dot_product() -> None:
    (code,) = find_examples("docs/development.md")
    namespace: dict[str, Any] = {}
    exec(code, namespace)  # noqa: S102
    outcome = namespace["outcome"]
    assert outcome.results == [999_000, None, None]
    (disclosure,) = outcome.ledgers[0].entries
    assert (disclosure.disclosure, disclosure.recipients, disclosure.n_elements) == (
        "dot product",
        ("party1",),
        1,
    )


def test_the_algebra() -> None:
    (code,) = find_examples("docs/algebra.md")
    exec(code, {})  # noqa: S102


def test_the_data_scientist_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X.assign(id=np.arange(569)).to_csv("new.csv", index=False)
    tables = {"X_bank": X.iloc[:, :10], "X_telecom": X.iloc[:, 10:20], "X_shop": X.iloc[:, 20:]}
    (code,) = find_examples("docs/guides/data-scientist.md")
    exec(code, {"X": X, "y": y, "X_new": X, **tables})  # noqa: S102
    assert (tmp_path / "model.json").exists()


DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "deploy/README.md"])


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "src/privet/README.md"], ids=str)
def test_documents_are_wrapped(document: Path) -> None:
    """At 100 columns, except tables, images and code."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "    ", "!["))]
    assert [line for line in lines if len(line) > 100] == []


@pytest.mark.parametrize("document", [str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_links_have_targets(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


def test_readme_has_at_most_120_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
