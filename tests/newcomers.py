"""Organisations that have tables, and no file of this software yet."""

from __future__ import annotations

import os
from pathlib import Path

from privet.data.datasets import load_dataset
from privet.data.partition import split_rows
from privet.experiments.local_federation import LocalFederation
from privet.runtime.local.launcher import PROCESS_ENVIRONMENT

ENVIRONMENT = {**PROCESS_ENVIRONMENT, **os.environ}


def write_tables(folder: Path) -> Path:
    """Make a folder for each organisation, with its table; the shop has the label."""
    rows, new = split_rows(load_dataset("breast-cancer").frame, 0.2, 0)
    LocalFederation(folder).write_tables(rows, new)
    return folder


def start_of(**changed: str | None) -> list[str]:
    """Return what the shop types to begin, with some options changed or left out."""
    given = {
        "name": "shop",
        "address": "shop.example:7403",
        "others": "bank,telecom",
        "table": "shop/train.csv",
        "folder": "shop",
        **changed,
    }
    return ["init", *(f"--{key}={value}" for key, value in given.items() if value is not None)]
