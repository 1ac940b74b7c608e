"""A federation on this machine: a process and a folder for each member.

    FOLDER/job.toml
    FOLDER/dealer/     its keys
    FOLDER/bank/       its keys, party.toml, train.csv, new.csv, and later models

The processes are those of the command line, as in a federation on several machines.
"""

from __future__ import annotations

import atexit
import csv
import json
import os
import random
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from privet.data.frame import Frame, Ids
from privet.data.partition import split_frame
from privet.errors import UnavailableError
from privet.filesystem import make_folder
from privet.runtime.local.launcher import PROCESS_ENVIRONMENT
from privet.runtime.run import make_dealer_names
from privet.transport.rendezvous import listen
from privet.transport.tls import create_identity

_BLOCK = 400
_BLOCKS = range(20_000, 32_000, _BLOCK)


def find_free_ports(count: int) -> list[int]:
    """Return free ports on this machine that no other process receives.

    A member listens only some time after its port was found to be free; meanwhile another process
    could take the port. Ports are therefore below those that systems assign to outgoing
    connections, and each process reserves a block of them, whose first port it holds while it
    lives. The ports of a block are returned in turn, since several federations can be created
    before any member listens.
    """
    block = _reserve_block(os.getpid())
    ports: list[int] = []
    with ExitStack() as stack:
        for _ in range(len(block)):
            port = block[0]
            block.rotate(-1)
            with suppress(UnavailableError):
                stack.enter_context(listen(port=port))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise UnavailableError(
        f"no {count} ports from {min(block)} to {max(block)} are free on this machine"
    )


@cache
def _reserve_block(process: int) -> deque[int]:
    """Reserve a block of ports; the cache key is the process, since a fork inherits the cache."""
    for first in random.SystemRandom().sample(_BLOCKS, len(_BLOCKS)):
        with suppress(UnavailableError):
            atexit.register(listen(port=first).close)
            return deque(range(first + 1, first + _BLOCK))
    raise UnavailableError(f"all blocks of ports from {_BLOCKS[0]} on this machine are in use")


DEFAULT_PARTY_NAMES = ("bank", "telecom", "shop")


@dataclass(frozen=True)
class LocalFederation:
    """A federation in a folder."""

    folder: Path
    party_names: tuple[str, ...] = DEFAULT_PARTY_NAMES
    n_dealers: int = 1

    @property
    def job_path(self) -> Path:
        """The path of the job, which all members share."""
        return self.folder / "job.toml"

    @property
    def member_names(self) -> tuple[str, ...]:
        """The names of the participants and the dealers."""
        return (*self.party_names, *self.dealer_names)

    @property
    def dealer_names(self) -> tuple[str, ...]:
        """The names of the dealer, or of all three dealers."""
        return make_dealer_names(self.n_dealers)

    @property
    def recipient(self) -> str:
        """The recipient of predictions: the active participant."""
        return self.party_names[-1]

    def get_part_path(self, name: str) -> Path:
        """Return the path of a participant's part of the model."""
        return self.folder / name / "models" / "rehearsal.part"

    def get_report_path(self, name: str, command: str) -> Path:
        """Return the path of a participant's report of a command."""
        return self.folder / name / f"{command}.report.json"

    @property
    def predictions_path(self) -> Path:
        """The path of the predictions, at the recipient."""
        return self.folder / self.recipient / "predictions.csv"

    def write_tables(self, train_rows: Frame, new_rows: Frame, label: str = "label") -> None:
        """Write the columns of every participant; the last one receives the labels."""
        if self.folder.exists() and any(self.folder.iterdir()):
            raise UnavailableError(f"{self.folder}: is not empty; give the name of a new folder")
        for rows, file in ((train_rows, "train.csv"), (new_rows, "new.csv")):
            for name, party in zip(
                self.party_names, split_frame(rows, len(self.party_names)), strict=True
            ):
                folder = make_folder(self.folder / name)
                with_label = label if name == self.recipient and file == "train.csv" else None
                _write_csv(folder / file, party.frame, with_label)
        truth = new_rows.select(())
        _write_csv(self.folder / self.recipient / "truth.csv", truth, label)

    def write_configuration(self, task: str, params: Mapping[str, Any], **job: str | int) -> None:
        """Create the keys of all members, the participants' party.toml, and the job."""
        fingerprints = {
            name: create_identity(name, make_folder(self.folder / name)).fingerprint
            for name in self.member_names
        }
        ports = find_free_ports(len(self.member_names))
        addresses = {n: f"127.0.0.1:{p}" for n, p in zip(self.member_names, ports, strict=True)}
        for name in self.party_names:
            label = 'label = "label"\n' if name == self.recipient else ""
            (self.folder / name / "party.toml").write_text(
                f'name = "{name}"\nkey = "{name}.key"\ncertificate = "{name}.crt"\n\n'
                f'[data]\npath = "train.csv"\nid = "id"\n{label}'
            )
        lines = ['name = "rehearsal"', f'task = "{task}"']
        lines += [f"{key} = {json.dumps(value)}" for key, value in job.items()]
        lines += ["", "[params]", *(f"{key} = {value}" for key, value in params.items())]
        for name in (*self.dealer_names, *self.party_names):
            single_dealer = name in self.dealer_names and self.n_dealers == 1
            lines += ["", "[[dealers]]" if name in self.dealer_names else "[[participants]]"]
            lines[-1] = "[dealer]" if single_dealer else lines[-1]
            lines += [] if single_dealer else [f'name = "{name}"']
            lines += ['role = "active"'] if name == self.recipient else []
            lines += [f'address = "{addresses[name]}"', f'fingerprint = "{fingerprints[name]}"']
        self.job_path.write_text("\n".join(lines) + "\n")

    def make_command(self, name: str, command: str, *options: str) -> list[str]:
        """Return the command line of a dealer, or of a participant's command."""
        folder = self.folder / name
        if name in self.dealer_names:
            keys = (f"--key={folder / f'{name}.key'}", f"--certificate={folder / f'{name}.crt'}")
            dealer_name = (f"--name={name}",) if self.n_dealers > 1 else ()
            return _make_privet_command(
                "dealer", f"--job={self.job_path}", *dealer_name, *keys, *options
            )
        party, report = (
            f"--party={folder / 'party.toml'}",
            f"--report={self.get_report_path(name, command)}",
        )
        if command == "train":
            return _make_privet_command("train", party, report, f"--job={self.job_path}", *options)
        if command == "ui":
            return _make_privet_command("ui", party, f"--job={self.job_path}", *options)
        rows = (f"--model={self.get_part_path(name)}", f"--data={folder / 'new.csv'}")
        if command == "serve":
            return _make_privet_command("serve", party, *rows, *options)
        out = (f"--out={self.predictions_path}",) if name == self.recipient else ()
        return _make_privet_command("predict", party, report, *rows, *out, *options)

    def start_process(self, name: str, command: str, *options: str) -> subprocess.Popen[str]:
        """Start the process of a member."""
        return subprocess.Popen(  # noqa: S603
            self.make_command(name, command, *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**PROCESS_ENVIRONMENT, **os.environ},
        )

    def run_command(
        self, command: str, *options: str, timeout: float | None = None
    ) -> dict[str, CompletedProcess]:
        """Run the processes of all members until they end, and return their results."""
        with ExitStack() as stack:
            running = {}
            for name in self.member_names:
                running[name] = stack.enter_context(self.start_process(name, command, *options))
                stack.callback(running[name].kill)

            def wait_for_exit(name: str) -> CompletedProcess:
                out, err = running[name].communicate(timeout=timeout)
                return CompletedProcess(running[name].returncode, out, err)

            # Read all outputs at once: a process with a full pipe blocks, and with it all others.
            with ThreadPoolExecutor(len(running)) as pool:
                return dict(zip(running, pool.map(wait_for_exit, running), strict=True))


@dataclass(frozen=True)
class CompletedProcess:
    """The exit code and output of a process."""

    return_code: int
    stdout: str = field(repr=False)
    stderr: str


def _make_privet_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "privet", *arguments]


def _write_csv(path: Path, frame: Frame, label: str | None) -> None:
    ids = frame.ids if frame.ids is not None else Ids.from_texts(range(frame.n_samples))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", *frame.names, *([label] if label else [])])
        columns = [ids.tolist(), *frame.columns.tolist()]
        if label and frame.label is not None:
            columns.append(frame.label.tolist())
        writer.writerows(
            ["" if str(value) == "nan" else value for value in row]
            for row in zip(*columns, strict=True)
        )
