"""Offline preprocessing: correlated randomness for a training run, by one dealer or three.

No dealer is there to compare anything, so a file says all that a dealer would have stated, and the
participants compare it with what they agreed on. They take their files when that is done, all of
one dealing or nobody any.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from privet.boosting.binning import BucketedColumns
from privet.boosting.model import Feature
from privet.boosting.prediction import validate
from privet.boosting.training import Federation, Keeping, train
from privet.config.job import Job
from privet.errors import CorrelationError, ParameterError, PrivetError
from privet.federation.alignment.alignment import refuse_other_ids
from privet.federation.monitoring.events import Event, Tell
from privet.federation.session.agreement import Agreement
from privet.federation.session.public_constants import UNLIKE_MACHINES, numbers_of
from privet.federation.session.session import Seat, refuse_differences
from privet.filesystem import check_room, make_folder
from privet.runtime.correlations.files import NEW_DEALING, DealtSource, open_dealt
from privet.runtime.correlations.replicated import Fellows
from privet.runtime.run import bytes_ahead, deal_ahead
from privet.runtime.runtime import Runtime
from privet.runtime.workers import Head
from privet.schema import Checked, explain
from privet.spec.plan import Plan, told_cuts
from privet.storage.json_records import Name
from privet.transport.channel import Channel, swap
from privet.transport.tls import Identity
from privet.version import __version__


def numbered_features(job: Job, counts: Sequence[int]) -> tuple[Feature, ...]:
    """Return features as the dealer knows them: whose, and how many."""
    return tuple(
        Feature(str(number), owner)
        for owner, count in zip(job.names, counts, strict=True)
        for number in range(count)
    )


def training_program(
    federation: Federation,
    plan: Plan,
    done: int,
    channel: Channel | None,
    keeping: Keeping | None = None,
    *,
    aligned: bool = False,
    workers: Sequence[Head] = (),
) -> Callable[[Runtime, None], None]:
    """Return a training as the dealer runs it: with the participants' channel, or ahead of them.

    Rows that were aligned are known to be the same, so their ids are not compared.
    """

    def training(runtime: Runtime, _: None) -> None:
        if not aligned:
            refuse_other_ids(runtime, federation.parties, None, channel)
        trained = train(
            runtime, federation, plan, None, done=done, keeping=keeping, workers=workers
        )
        validate(runtime, federation, plan, trained, None, workers)

    return training


RECORD = "used-correlations"
"""The folder, beside a participant's models, of the marks of seeds that it has used."""
_NONE = "none"
"""What a participant without a file states as its dealing."""


class Work(Checked):
    """What correlations are dealt for: all that the dealer's part depends on."""

    version: Name
    """Of the software."""
    job: Name
    """The job's digest."""
    samples: Annotated[int, Field(ge=0)]
    features: list[int]
    """How many each participant has."""
    cuts: list[int] | None
    """How many cuts each of them has, if the job has that told."""
    length: Name
    """How many tables are trained."""
    monotone: list[int] = Field(default_factory=list)
    """The constraint of each of them, if there are any."""
    done: Annotated[int, Field(ge=0)]
    """How many tables are there already."""
    numbers: dict[Name, Name]
    """Digests of the numbers that the dealer computed with."""

    @classmethod
    def of(cls, job: Job, federation: Federation, samples: int, done: int) -> Work:
        """Return what there is to do, as this machine would do it."""
        features, cuts = federation.features, federation.cut_counts
        counts = Counter(feature.owner for feature in features)
        return cls(
            version=__version__,
            job=job.digest,
            samples=samples,
            features=[counts[name] for name in job.names],
            cuts=None if cuts is None else list(cuts),
            length=job.length,
            monotone=list(federation.monotone),
            done=done,
            numbers=numbers_of(federation, samples),
        )

    def order(self) -> str:
        """Return the command that deals for it."""
        counts = ",".join(str(count) for count in self.features)
        if self.cuts is not None:
            cuts = self.cuts[:1] if len(set(self.cuts)) == 1 else self.cuts
            counts += f" --cuts {','.join(str(count) for count in cuts)}"
        if self.monotone:
            counts += f" --monotone={','.join(str(sign) for sign in self.monotone)}"
        done = f" --done {self.done}" if self.done else ""
        return (
            f"`privet dealer --job job.toml --ahead FOLDER --samples {self.samples} "
            f"--features {counts}{done}`"
        )


def deal_files(
    job: Job,
    federation: Federation,
    identity: Identity,
    folder: Path,
    samples: int,
    done: int,
    tell: Tell,
    fellows: Fellows | None = None,
) -> list[Path]:
    """Deal for a training before anybody is there; return the participants' files.

    Three dealers do so together, each with its fellows, once they have `agreed_with` each other.
    """
    plan = federation.plan(samples)
    if plan.params.patience is not None and (plan.reveal_validation or plan.explains):
        raise ParameterError(
            "reveal_validation, explain: nobody knows ahead when a training with patience will "
            "end, so its last step cannot be dealt for: leave one of the two out, or have the "
            "dealer be there"
        )
    program = training_program(federation, plan, done, None, aligned=job.align)
    terms = Work.of(job, federation, samples, done).model_dump()
    needed = bytes_ahead(program, job.names, identity, terms, fellows)
    most = "" if fellows is None else "at most "
    tell(
        Event(
            "room",
            f"{len(job.names)} files in {folder} will take {most}{needed:,} bytes",
            {"bytes": needed},
        )
    )
    check_room(make_folder(folder), needed)
    tables = job.hyper_parameters().tables

    def on_table(table: int) -> None:
        tell(Event("table", f"table {table} of {tables} dealt", {"table": table, "tables": tables}))

    return deal_ahead(program, job.names, folder, identity, terms, on_table, fellows)


class Dealt:
    """One participant's file, or the lack of it."""

    def __init__(self, source: DealtSource | None, problem: str, record: Path) -> None:
        self._source = source
        self._problem = problem
        self._record = record

    @classmethod
    def find(
        cls,
        paths: Sequence[str],
        folder: Path,
        job: Job,
        name: str,
        columns: BucketedColumns,
        *,
        going_on: bool = False,
    ) -> Dealt:
        """Check a file, or one of each of three dealers, before anybody is bothered.

        Whoever is going on with a training has used its file up. What to order then depends on what
        the others have, so the complaint waits until all have met.
        """
        record = folder / RECORD
        try:
            dealers = {n: contact.fingerprint for n, contact in job.dealing().items()}
            source = open_dealt(paths, dealers)
            try:
                _check_own(source, record, job, name, columns)
            except BaseException:
                source.close()
                raise
        except CorrelationError as error:
            if not going_on:
                raise
            return cls(None, str(error), record)
        return cls(source, "", record)

    @property
    def dealing(self) -> str:
        """The name of the dealing, to be compared."""
        return _NONE if self._source is None else self._source.cover.dealing

    def take(self, channel: Channel, job: Job, agreement: Agreement) -> DealtSource:
        """Use the file up, if everybody has its own of the same dealing, made for this."""
        federation = job.federation(agreement.features, agreement.cut_counts)
        work = Work.of(job, federation, agreement.samples, agreement.stage[0])
        anew = f"{NEW_DEALING}: {work.order()}"
        ours = f"{self._problem}; " if self._problem else ""
        told = {n: f"dealing {dealing}" for n, dealing in agreement.dealings.items()}
        refuse_differences(
            channel,
            {"correlations": told},
            f"{ours}all need their files of one dealing: fetch them from the dealer, or {anew}",
        )
        try:
            if self._source is None:
                raise CorrelationError(f"{ours}{work.done} tables are done, so {anew}")
            _refuse(self._source, work.model_dump(), anew)
            self._source.take(self._record)
        except PrivetError:
            channel.leave()  # as everybody does, who has its file of the same dealing
            raise
        return self._source

    def close(self) -> None:
        """Leave the file as it is."""
        if self._source is not None:
            self._source.close()


def _check_own(
    source: DealtSource, record: Path, job: Job, name: str, columns: BucketedColumns
) -> None:
    """Raise CorrelationError unless a file is ours, not used, and for what we know of the work."""
    if source.cover.participant != name:
        raise CorrelationError(
            f"{source.path}: is for {source.cover.participant}, not for {name}: put our own there"
        )
    source.check_unused(record)
    work, own, n_features = _work(source), job.names.index(name), len(columns.names)
    features = [*work.features[:own], n_features, *work.features[own + 1 :]]
    before = sum(features[:own])
    told = told_cuts(columns.filled_cuts, job.told_cuts, job.hyper_parameters().candidates)
    cuts = work.cuts or []
    due = {
        "version": __version__,
        "job": job.digest,
        "length": job.length,
        "samples": columns.n_samples,
        "features": features,
        "cuts": told and [*cuts[:before], *told, *cuts[before + n_features :]],
    }
    _refuse(source, due, NEW_DEALING)


def _work(source: DealtSource) -> Work:
    try:
        return Work.model_validate(source.cover.terms)
    except ValidationError as error:
        raise CorrelationError(
            f"{source.path}: says nonsense of what it is for: {explain(error)}: {NEW_DEALING}"
        ) from None


def _refuse(source: DealtSource, due: dict[str, Any], advice: str) -> None:
    """Raise CorrelationError unless a file was dealt for what is due, as far as that is known."""
    found = _work(source).model_dump()
    keys = ("version", "job", "length", "samples", "features", "cuts", "monotone", "done")
    for key in keys:
        if key in due and found[key] != due[key]:
            raise CorrelationError(
                f"{source.path}: was dealt for {_NAMES[key]}: {found[key]}, and here it is "
                f"{due[key]}: {advice}"
            )
    if "numbers" in due and found["numbers"] != due["numbers"]:
        differing = [k for k, v in due["numbers"].items() if found["numbers"].get(k) != v]
        raise CorrelationError(
            f"{source.path}: was dealt with other {', '.join(differing)}: {UNLIKE_MACHINES}"
        )


_NAMES = {
    "version": "the version",
    "job": "a job with the digest",
    "length": "a training of",
    "samples": "samples",
    "features": "features of the participants",
    "cuts": "numbers of cuts",
    "monotone": "constraints",
    "done": "tables done",
}


def deal_files_together(
    seat: Seat, federation: Federation, folder: Path, samples: int, done: int
) -> list[Path]:
    """Deal for a training with the other two dealers; return our files for the participants."""
    job = seat.job
    with seat.meet(ahead=True) as channel:
        channel.where = lambda: "agreement"
        work = Work.of(job, federation, samples, done).model_dump()
        ours = {"terms": job.terms(), **work}
        received = swap(channel, dict.fromkeys(channel.peers, json.dumps(_digests(ours)).encode()))
        stated = {seat.name: _digests(ours)}
        for peer, content in received.items():
            stated[peer] = _parsed(content)
        keys = dict.fromkeys(key for each in stated.values() for key in each)
        refuse_differences(
            channel,
            {key: {name: stated[name].get(key, "none") for name in stated} for key in keys},
            "all three dealers take the same job and the same options",
        )
        fellows = Fellows(job.dealer_names.index(seat.name), job.dealer_names, channel)
        channel.where = lambda: "dealing ahead"
        paths = deal_files(
            job, federation, seat.identity, folder, samples, done, seat.tell, fellows
        )
        channel.close()
    return paths


def _digests(terms: dict[str, object]) -> dict[str, str]:
    """Return what is compared: short values as they are, long ones as digests."""
    texts = {key: json.dumps(value, sort_keys=True) for key, value in terms.items()}
    return {
        key: text if len(text) < 100 else hashlib.sha256(text.encode()).hexdigest()[:16]
        for key, text in texts.items()
    }


def _parsed(content: bytes) -> dict[str, str]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        found = {"statement": "no statement"}
    return {str(key): str(value) for key, value in found.items()}
