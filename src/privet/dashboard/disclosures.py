"""What left the protocol, in words, beside what a job allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privet.config.job import Job

_WORDS = {
    "predictions": "{n} predictions",
    "predictions of validation rows": "{n} predictions of validation rows",
    "whose ids are the same": "whether the others' ids are the first one's, {n} answers",
    "which of its rows all have": "which of its {n} rows all have",
    "number of rows that all have": "how many rows all have",
    "number of its rows": "how many rows each has, {n} numbers",
    "number of rows that some have": "how many rows some have in common, {n} numbers",
    "numbers of cuts": "how many cuts {n} columns have",
    "split feature": "which feature is tested at {n} levels",
    "split bucket": "the thresholds of {n} tests on features of its own",
    "best bucket of every feature": "the best buckets of features, {n} in all",
    "numbers within bounds": "that leaf values and scores are within bounds, by {n} counts",
    "training loss": "the training loss of {n} tables",
    "validation loss": "the mean loss on validation rows after {n} tables",
    "number of tables to keep, or none yet": "whether training goes on, {n} times",
    "gain of a test": "what {n} levels gain",
    "mean absolute contributions": "how large {n} contributions are on average",
    "contributions and base": "{n} contributions to scores",
    "centre and scale of the label": "the label's centre and scale",
    "names of the classes": "the names of the classes",
    "leaf values": "{n} leaf values",
    "thresholds": "{n} thresholds of others",
    "kinds and categories of columns": "kinds and categories of {n} columns of others",
}
_SINGULAR = {
    "1 predictions": "1 prediction",
    "1 tests": "1 test",
    "1 levels": "1 level",
    "1 tables": "1 table",
    "1 columns": "1 column",
    "1 answers": "1 answer",
    "1 times": "once",
    "1 counts": "1 count",
    "1 numbers": "1 number",
}


@dataclass(frozen=True)
class Allowance:
    """Something that a job has revealed, or could and does not."""

    what: str
    """As the ledger calls it."""
    to: tuple[str, ...]
    """Who may learn it; nobody, if the job does not say so."""
    words: str
    because: str
    """The term of the job, or why it is always so."""


def audience(to: Sequence[str], job: Job) -> str:
    """Return who learned something, in words."""
    everybody, dealers = set(job.names), set(job.dealer_names)
    if everybody <= set(to):
        others = [name for name in to if name in dealers]
        return f"all participants and {' and '.join(others)}" if others else "all participants"
    return ", ".join(to[:-1]) + (" and " if len(to) > 1 else "") + to[-1] if to else "nobody"


def sentence(what: str, to: Sequence[str], count: int, job: Job) -> str:
    """Return one reveal in words."""
    learned = _WORDS.get(what, f"{{n}} of: {what}").format(n=f"{count:,}")
    for several, one in _SINGULAR.items() if count == 1 else ():
        learned = learned.replace(several, one)
    who = audience(to, job)
    return f"{who[0].upper() if who.startswith('all ') else who[0]}{who[1:]} learned {learned}"


def allowances(job: Job) -> list[Allowance]:
    """Return all that a job has revealed, and what it could have and does not."""
    everybody = tuple(job.names)
    all_and_dealers = (*everybody, *job.dealer_names)
    active = (job.names[job.active],)
    recipient = (job.names[job.recipient_index],)
    params = job.hyper_parameters()
    elsewhere = recipient != active
    paper = job.protocol == "paper"
    return [
        *_of_rows(job, everybody, all_and_dealers),
        Allowance(
            "numbers of cuts",
            () if job.told_cuts == "hidden" else everybody,
            "how many cuts columns have",
            f'cuts = "{job.told_cuts}"',
        ),
        Allowance("split feature", everybody, "which feature each level tests", "always"),
        Allowance(
            "best bucket of every feature",
            everybody if paper else (),
            "the best bucket of every feature",
            f'protocol = "{job.protocol}"',
        ),
        Allowance(
            "split bucket",
            () if paper else everybody,
            "thresholds of tests on features of one's own",
            "always, each its own",
        ),
        Allowance(
            "numbers within bounds",
            everybody,
            "that leaf values and scores are within bounds",
            "always",
        ),
        _if(job.reveal_loss, "training loss", everybody, "the training loss", "reveal_loss"),
        Allowance(
            "validation loss",
            active if params.validation else (),
            "the mean loss on validation rows",
            f"validation = {params.validation:g}",
        ),
        Allowance(
            "number of tables to keep, or none yet",
            () if params.patience is None else all_and_dealers,
            "whether training goes on, after every table",
            "no patience" if params.patience is None else f"patience = {params.patience}",
        ),
        _if(
            job.reveal_validation,
            "predictions of validation rows",
            active,
            "predictions of validation rows",
            "reveal_validation",
        ),
        _if(job.reveal_gain, "gain of a test", active, "what each level gains", "reveal_gain"),
        _if(
            job.reveal_importances,
            "mean absolute contributions",
            active,
            "how large contributions are on average",
            "reveal_importances",
        ),
        Allowance(
            "predictions",
            recipient,
            "predictions",
            f"recipient = {recipient[0]}, rounded to 2^-{job.revealed_bits}",
        ),
        Allowance(
            "contributions and base",
            () if job.explain is None else recipient,
            "what contributes to predictions",
            "no explain" if job.explain is None else f'explain = "{job.explain}"',
        ),
        *_of_the_label(job, recipient if elsewhere else ()),
        *_of_export(job),
    ]


def _if(said: bool, what: str, to: tuple[str, ...], words: str, term: str) -> Allowance:
    return Allowance(what, to if said else (), words, f"{term} = {str(said).lower()}")


def _of_rows(
    job: Job, everybody: tuple[str, ...], all_and_dealers: tuple[str, ...]
) -> list[Allowance]:
    if not job.align:
        words = "whether everybody has the first one's ids"
        return [Allowance("whose ids are the same", everybody, words, "always")]
    return [
        Allowance(
            "which of its rows all have", everybody, "which of one's rows all have", "align = true"
        ),
        Allowance(
            "number of rows that all have",
            all_and_dealers,
            "how many rows all have",
            "align = true",
        ),
        Allowance(
            "number of its rows",
            () if job.ids.padded else (job.aligner,),
            "how many rows each has",
            f"ids.padded = {job.ids.padded}" if job.ids.padded else "align = true, not padded",
        ),
        Allowance(
            "number of rows that some have",
            (job.aligner,),
            "how many rows every two or more have in common",
            "align = true",
        ),
    ]


def _of_the_label(job: Job, to: tuple[str, ...]) -> list[Allowance]:
    """Return what a recipient is told who does not hold the label."""
    if not to and not job.export:
        return []
    receivers = tuple(dict.fromkeys((*to, *([job.export] if job.export else []))))
    return [
        Allowance(what, receivers, words, "receives what the label's holder has")
        for what, words in (
            ("centre and scale of the label", "the label's centre and scale"),
            ("names of the classes", "the names of the classes"),
        )
    ]


def _of_export(job: Job) -> list[Allowance]:
    to = (job.export,) if job.export else ()
    term = f"export = {job.export}" if job.export else "no export"
    return [
        Allowance("leaf values", to, "leaf values", term),
        Allowance("thresholds", to, "thresholds of others", term),
        Allowance("kinds and categories of columns", to, "kinds and categories of columns", term),
    ]


def ledger(job: Job, reveals: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what was revealed, in words, beside what the job allows; all that it does not, marked.

    One row for each allowance, and one for each thing that none allows.
    """
    told: list[Mapping[str, Any]] = list(reveals)
    rows: list[dict[str, Any]] = []
    for allowed in allowances(job):
        seen = [r for r in told if r["what"] == allowed.what and set(r["to"]) <= set(allowed.to)]
        told = [r for r in told if r not in seen]
        rows.append(
            {
                "what": allowed.words,
                "to": audience(allowed.to, job),
                "because": allowed.because,
                "allowed": bool(allowed.to),
                "count": sum(r["count"] for r in seen),
                "sentences": [sentence(r["what"], r["to"], r["count"], job) for r in seen],
            }
        )
    for r in told:
        words = sentence(r["what"], r["to"], r["count"], job)
        rows.append(
            {
                "what": r["what"],
                "to": audience(r["to"], job),
                "because": "no term of this job",
                "allowed": False,
                "count": r["count"],
                "sentences": [words],
            }
        )
    return rows


def added(ledgers: Iterable[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the reveals of several runs, added up."""
    counts: dict[tuple[str, tuple[str, ...]], int] = {}
    for one in ledgers:
        for reveal in one:
            key = reveal["what"], tuple(reveal["to"])
            counts[key] = counts.get(key, 0) + reveal["count"]
    return [{"what": what, "to": list(to), "count": n} for (what, to), n in counts.items()]
