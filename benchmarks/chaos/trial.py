"""A federation with several interruptions, whose result must not change."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.chaos.relay import Relays
from benchmarks.chaos.strike import (
    PATIENCE,
    PHASES,
    Strike,
    all_is_done,
    check_ends,
    check_gathering,
    check_logs,
    hit,
)
from benchmarks.chaos.watched import Watched
from privet.boosting.model import Model
from privet.boosting.model_part import join_parts
from privet.config.job import Job
from privet.data.frame import Frame
from privet.errors import ModelError
from privet.experiments.local_federation import LocalFederation
from privet.storage.model_part import load_part

CLOSE = 1e-3
"""Tolerance of leaf values and predictions, compared with plaintext."""


@dataclass
class Outcome:
    """Outcome of one interruption."""

    strike: Strike
    problems: list[str] = field(default_factory=list)
    missed: bool = False
    """Whether all processes had ended before the interruption."""
    seconds: float = 0.0
    """Seconds from the interruption until all processes had ended, or were connected."""


@dataclass
class Trial:
    """A federation, and its expected result."""

    local: LocalFederation
    plain: Model
    new: Frame
    relays: Relays

    def suffer(self, strikes: Sequence[Strike]) -> list[Outcome]:
        """Interrupt the federation in the order of phases, then let it end; return all outcomes."""
        ordered = sorted(strikes, key=lambda strike: PHASES.index(strike.phase))
        found = [self._interrupt(strike) for strike in ordered if strike.verb == "train"]
        problems = self._train()
        found += [self._interrupt(strike) for strike in ordered if strike.verb == "predict"]
        found[-1].problems += problems + self._predict() + self._left_over()
        return found

    def _interrupt(self, strike: Strike) -> Outcome:
        outcome, late = Outcome(strike), ""
        if strike.phase == "gathering":
            late = next(name for name in self.local.member_names if name not in strike.victims)
        with self._running(strike.verb, late) as running:
            watched = [running[name] for name in self._watched(strike, running)]
            if not all(each.has_said(strike.is_due, PATIENCE) for each in watched):
                outcome.missed = all(each.code == 0 for each in watched)
                if not outcome.missed:
                    outcome.problems.append(f"{watched[0].name} ended: {watched[0].last['text']}")
                for each in running.values():
                    each.has_ended(PATIENCE)
                return outcome
            struck = time.monotonic()
            workers = hit(strike, running, self.relays)
            if strike.phase == "gathering":
                verb = strike.verb
                outcome.problems += check_gathering(
                    strike, running, lambda name: self._start(name, verb), late
                )
            else:
                outcome.problems += check_ends(strike, running, struck, workers)
                outcome.missed = not strike.late and all_is_done(running)
            outcome.seconds = time.monotonic() - struck
        done = self._common_stage()
        if strike.phase in ("tables", "end") and done < strike.table - 1:
            outcome.problems.append(f"{done} tables are kept of {strike.table}")
        return outcome

    def _watched(self, strike: Strike, running: Iterable[str]) -> list[str]:
        """Return the roles whose logs trigger the interruption; a victim's log if possible.

        In the first phases all logs count, since a member may wait until all are connected.
        """
        if strike.phase in ("gathering", "agreement", "prediction"):
            return list(running)
        if strike.phase in ("tables", "end"):
            local_names = [name for name in strike.heads if name in self.local.party_names]
            return [*local_names, *self.local.party_names][:1]
        return [strike.heads[0]]

    def _start(self, name: str, verb: str) -> Watched:
        listening = self.relays.listening[name]
        options = (f"--listen={listening}",) if name in self.local.dealer_names else ()
        return Watched(self.local, name, verb, f"--wait={PATIENCE:g}", *options)

    @contextmanager
    def _running(self, verb: str, absent: str = "") -> Iterator[dict[str, Watched]]:
        running: dict[str, Watched] = {}
        try:
            for name in self.local.member_names:
                if name != absent:
                    running[name] = self._start(name, verb)
            yield running
        finally:
            for watched in running.values():
                watched.kill()

    def _end(self, verb: str) -> tuple[list[str], dict[str, Watched]]:
        with self._running(verb) as running:
            problems = [
                f"{name} ends with {watched.code}: {watched.last['text']}"
                for name, watched in running.items()
                if not watched.has_ended(PATIENCE) or watched.code != 0
            ]
            return problems + check_logs(running.values()), running

    def _train(self) -> list[str]:
        """Run the training to its end; return all problems."""
        done = self._common_stage()
        problems, running = self._end("train")
        if problems:
            return problems
        resumed = {name: running[name].last["resumed_from"] for name in self.local.party_names}
        problems += [
            f"{n} goes on after table {t} of {done}" for n, t in resumed.items() if t != done
        ]
        model = join_parts(
            [load_part(self.local.get_part_path(name)).part for name in self.local.party_names]
        )
        same = (model.feature == self.plain.feature) & (model.bucket == self.plain.bucket)
        if not same.all():
            problems.append(f"{np.count_nonzero(~same)} tests differ")
        elif np.abs(model.leaf_values - self.plain.leaf_values).max() > CLOSE:
            problems.append("leaf values differ")
        return problems

    def _predict(self) -> list[str]:
        """Predict new rows; return all problems."""
        problems, _ = self._end("predict")
        if problems:
            return problems
        with self.local.predictions_path.open(newline="", encoding="utf-8") as file:
            found = [float(row[-1]) for row in list(csv.reader(file))[1:]]
        expected = self.plain.predict(self.new.columns)
        if len(found) != len(expected) or np.abs(np.array(found) - expected).max() > CLOSE:
            problems.append("predictions differ")
        return problems

    def _left_over(self) -> list[str]:
        """Return problems with unexpected files at the end."""
        problems = []
        for name in self.local.party_names:
            folder = self.local.get_part_path(name).parent
            expected = {"rehearsal.checkpoints", "rehearsal.part", "runs"}
            unexpected = {path.name for path in folder.iterdir()} - expected
            kinds = sorted(path.suffix for path in (folder / "rehearsal.checkpoints").iterdir())
            unexpected |= {path.name for path in folder.parent.glob(".*")}
            if unexpected or kinds != [".ended", *self._shards, ".tables"]:
                problems.append(f"{name} is left with {sorted(unexpected) or kinds}")
        return problems

    @property
    def _shards(self) -> list[str]:
        """Suffixes of the checkpoints that workers keep at the end."""
        shards = Job.read(self.local.job_path).shards
        return [f".shard{number}" for number in range(shards if shards > 1 else 0)]

    def _common_stage(self) -> int:
        """Return the number of tables from which all participants can resume."""
        stages = []
        for name in self.local.party_names:
            part = self.local.get_part_path(name)
            folder = part.parent / "rehearsal.checkpoints"
            found = {p.stem for kind in ("scores", "ended") for p in folder.glob(f"*.{kind}")}
            stages.append(found | _stage_of(part))
        return max((int(stem[:5]) for stem in set.intersection(*stages)), default=0)


def _stage_of(part: Path) -> set[str]:
    """Return the stage of a model part, in the format of checkpoint names."""
    try:
        tables, run = load_part(part).checkpoint_key
    except ModelError:
        return set()
    return {f"{tables:05d}-{run[:16]}"}
