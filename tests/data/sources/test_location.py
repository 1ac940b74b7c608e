from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from privet import DataError, ParameterError, UnavailableError
from privet.data.sources.base import is_url
from privet.data.sources.open import open_source


def test_urls(tmp_path: Path) -> None:
    path = tmp_path / "a table.csv"
    path.write_text("a,b\n1,2\n")
    source = open_source(path.as_uri())
    assert source.display_name == path.as_uri()
    assert [batch.to_pydict() for batch in source.iter_batches(["b"])] == [{"b": ["2"]}]
    assert is_url("s3://bucket/table")
    assert not is_url("C:/table")
    assert not is_url(tmp_path)


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "table.csv").write_text("a,b\n1,2\n")
    monkeypatch.chdir(tmp_path)
    for path in ("folder/table.csv", "folder", "./folder/"):
        (batch,) = open_source(path).iter_batches(["b"])
        assert batch.to_pydict() == {"b": ["2"]}


@pytest.mark.parametrize("path", ["none.csv", "none/none.csv", "file/none.csv"])
def test_missing_file(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    for location in (tmp_path / path, (tmp_path / path).as_uri()):
        with pytest.raises(DataError, match=rf"^{location}: No such file or directory$"):
            open_source(location)


@pytest.fixture
def not_root() -> Iterator[None]:
    """Run as a user without permission to read all files."""
    before = os.geteuid()
    os.seteuid(before or 65534)
    yield
    os.seteuid(before)


@pytest.mark.usefixtures("not_root")
def test_permission_denied() -> None:
    with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryDirectory() as folder:
        for path in (file.name, folder):
            Path(path).chmod(0)
            with pytest.raises(DataError, match=rf"^{path}: Permission denied$"):
                open_source(path)
            Path(path).chmod(0o700)


def test_neither_file_nor_folder(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with pytest.raises(DataError, match=rf"^{path}: neither a file nor a folder$"):
            open_source(path)


def test_unknown_url_schemes_are_rejected() -> None:
    with pytest.raises(ParameterError, match=r"^path: foo://host/x: Unrecognized filesystem type"):
        open_source("foo://host/x")
    with pytest.raises(ParameterError, match=r"^path: http://host/x: Unrecog") as caught:
        open_source("http://host/x?token=hush")
    assert "hush" not in str(caught.value)


def test_missing_file_system_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", "/nonexistent")
    with pytest.raises(UnavailableError, match=r"^hdfs://host:1/x: \S") as caught:
        open_source("hdfs://host:1/x")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("secret", ["hush", "hu/sh", "12", "hu@sh", "hu?sh"])
def test_passwords_in_urls_are_rejected(secret: str) -> None:
    complaint = r"^path: the address of s3://bucket/x\.csv has a password in it; leave it out"
    with pytest.raises(ParameterError, match=complaint) as caught:
        open_source(f"s3://me:{secret}@bucket/x.csv")
    assert secret not in str(caught.value)


def test_colons_that_are_not_passwords(tmp_path: Path) -> None:
    """A colon in a file name or before a port is not a password."""
    path = tmp_path / "a:b@c.csv"
    path.write_text("a,b\n1,2\n")
    for location in (path, f"file://{path}"):
        assert open_source(location).display_name == str(location)
    with pytest.raises((UnavailableError, DataError)):
        open_source("hdfs://host:1/a@b")
