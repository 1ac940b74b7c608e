"""Input tables and arguments for `privet init`, without any files of Privet."""

from __future__ import annotations

import os
from pathlib import Path

from privet.data.datasets import load_dataset
from privet.data.partition import split_rows
from privet.experiments.local_federation import LocalFederation
from privet.runtime.local.launcher import PROCESS_ENVIRONMENT

ENVIRONMENT = {**PROCESS_ENVIRONMENT, **os.environ}


def write_tables(folder: Path) -> Path:
    """Write a folder with a table for each organisation; the shop has the label."""
    rows, new = split_rows(load_dataset("breast-cancer").frame, 0.2, 0)
    LocalFederation(folder).write_tables(rows, new)
    return folder


def make_init_arguments(**changed: str | None) -> list[str]:
    """Return the arguments of `privet init` at the shop, with options changed or omitted."""
    options = {
        "name": "shop",
        "address": "shop.example:7403",
        "others": "bank,telecom",
        "table": "shop/train.csv",
        "folder": "shop",
        **changed,
    }
    return ["init", *(f"--{key}={value}" for key, value in options.items() if value is not None)]
