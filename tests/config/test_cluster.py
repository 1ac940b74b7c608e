"""The `[cluster]` section of party.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from privet.config.party import ClusterConfig
from privet.errors import ParameterError
from privet.schema import parse_toml

SCHEDULER = 'scheduler = "tls://dask.example:8786"\n'


def test_all_keys_of_the_guide(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(
        f'{SCHEDULER}ca = "ca.pem"\ncertificate = "client.pem"\nkey = "client.key"\n'
        'door = "10.0.0.1:0"\nadvertise = "bank.example"\nports = [7500, 7531]\n'
    )
    found = ClusterConfig.load(path)
    assert found.ports == [7500, 7531]
    assert found.ca == str(tmp_path / "ca.pem")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ports = [7531, 7500]", r"ports: give the first and the last port, such as"),
        ("ports = [7500]", r"ports: give the first and the last port, such as"),
        ("ports = [0, 7500]", r"ports\.0: .*greater than or equal to 1"),
        (SCHEDULER, r"ca: is required with a scheduler"),
        (SCHEDULER + 'ca = "a"\ncertificate = "b"', r"key: is required with a scheduler"),
        (SCHEDULER + "local = 2", r"local: .*remove one"),
        ('scheduler = "tcp://dask.example:8786"', r"no tls:// address"),
        ('ca = "a"', r"ca: is for a scheduler"),
    ],
)
def test_invalid_settings_are_rejected(text: str, complaint: str) -> None:
    with pytest.raises(ParameterError, match=complaint):
        ClusterConfig.parse(parse_toml(text))
