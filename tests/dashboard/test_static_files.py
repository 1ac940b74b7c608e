"""The dashboard's static files: small, and without external resources."""

from __future__ import annotations

import re

import pytest

from privet.dashboard.app import STATIC_FOLDER

FILES = sorted(STATIC_FOLDER.iterdir())


def test_total_size_is_limited() -> None:
    assert sum(path.stat().st_size for path in FILES) < 300_000


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_external_resources(path: object) -> None:
    text = str(path) and path.read_text()  # type: ignore[attr-defined]
    addresses = set(re.findall(r"https?://[^\"' )]+", text)) - {"http://www.w3.org/2000/svg"}
    assert addresses == set()
    assert not re.search(r"@import|url\(", text)


@pytest.mark.parametrize("path", [p for p in FILES if p.suffix == ".js"], ids=lambda p: p.name)
def test_scripts_do_not_insert_html(path: object) -> None:
    text = path.read_text()  # type: ignore[attr-defined]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text)


def test_imported_modules_exist() -> None:
    names = {path.name for path in FILES}
    for path in FILES:
        if path.suffix == ".js":
            assert set(re.findall(r'from "\./([\w.]+)"', path.read_text())) <= names
