"""Disclosures in words, compared with those that a job permits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privet.config.job import Job

_SENTENCES = {
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
class PermittedDisclosure:
    """A disclosure that a job permits, or could permit and does not."""

    disclosure: str
    """Name of the disclosure in the disclosure ledger."""
    recipients: tuple[str, ...]
    """Permitted recipients; empty if the job does not permit the disclosure."""
    text: str
    condition: str
    """The setting of the job that permits it, or why it is always permitted."""


def format_recipients(recipients: Sequence[str], job: Job) -> str:
    """Return the recipients of a disclosure in words."""
    parties, dealers = set(job.party_names), set(job.dealer_names)
    if parties <= set(recipients):
        others = [name for name in recipients if name in dealers]
        return f"all participants and {' and '.join(others)}" if others else "all participants"
    return (
        ", ".join(recipients[:-1]) + (" and " if len(recipients) > 1 else "") + recipients[-1]
        if recipients
        else "nobody"
    )


def format_disclosure(disclosure: str, recipients: Sequence[str], count: int, job: Job) -> str:
    """Return one disclosure in words."""
    learned = _SENTENCES.get(disclosure, f"{{n}} of: {disclosure}").format(n=f"{count:,}")
    for plural, singular in _SINGULAR.items() if count == 1 else ():
        learned = learned.replace(plural, singular)
    subject = format_recipients(recipients, job)
    first = subject[0].upper() if subject.startswith("all ") else subject[0]
    return f"{first}{subject[1:]} learned {learned}"


def list_permitted(job: Job) -> list[PermittedDisclosure]:
    """Return all disclosures that a job permits, and those that it could permit."""
    parties = tuple(job.party_names)
    members = (*parties, *job.dealer_names)
    active = (job.party_names[job.label_holder_index],)
    recipient = (job.party_names[job.recipient_index],)
    params = job.make_params()
    is_other = recipient != active
    paper = job.protocol == "paper"
    return [
        *_permit_row_disclosures(job, parties, members),
        PermittedDisclosure(
            "numbers of cuts",
            () if job.cut_disclosure == "hidden" else parties,
            "how many cuts columns have",
            f'cuts = "{job.cut_disclosure}"',
        ),
        PermittedDisclosure("split feature", parties, "which feature each level tests", "always"),
        PermittedDisclosure(
            "best bucket of every feature",
            parties if paper else (),
            "the best bucket of every feature",
            f'protocol = "{job.protocol}"',
        ),
        PermittedDisclosure(
            "split bucket",
            () if paper else parties,
            "thresholds of tests on features of one's own",
            "always, each its own",
        ),
        PermittedDisclosure(
            "numbers within bounds",
            parties,
            "that leaf values and scores are within bounds",
            "always",
        ),
        _permit_if(job.reveal_loss, "training loss", parties, "the training loss", "reveal_loss"),
        PermittedDisclosure(
            "validation loss",
            active if params.validation else (),
            "the mean loss on validation rows",
            f"validation = {params.validation:g}",
        ),
        PermittedDisclosure(
            "number of tables to keep, or none yet",
            () if params.patience is None else members,
            "whether training goes on, after every table",
            "no patience" if params.patience is None else f"patience = {params.patience}",
        ),
        _permit_if(
            job.reveal_validation,
            "predictions of validation rows",
            active,
            "predictions of validation rows",
            "reveal_validation",
        ),
        _permit_if(
            job.reveal_gain, "gain of a test", active, "what each level gains", "reveal_gain"
        ),
        _permit_if(
            job.reveal_importances,
            "mean absolute contributions",
            active,
            "how large contributions are on average",
            "reveal_importances",
        ),
        PermittedDisclosure(
            "predictions",
            recipient,
            "predictions",
            f"recipient = {recipient[0]}, rounded to 2^-{job.prediction_fraction_bits}",
        ),
        PermittedDisclosure(
            "contributions and base",
            () if job.explain is None else recipient,
            "what contributes to predictions",
            "no explain" if job.explain is None else f'explain = "{job.explain}"',
        ),
        *_permit_label_disclosures(job, recipient if is_other else ()),
        *_permit_export_disclosures(job),
    ]


def _permit_if(
    is_set: bool, disclosure: str, recipients: tuple[str, ...], text: str, setting: str
) -> PermittedDisclosure:
    return PermittedDisclosure(
        disclosure, recipients if is_set else (), text, f"{setting} = {str(is_set).lower()}"
    )


def _permit_row_disclosures(
    job: Job, parties: tuple[str, ...], members: tuple[str, ...]
) -> list[PermittedDisclosure]:
    if not job.align:
        text = "whether everybody has the first one's ids"
        return [PermittedDisclosure("whose ids are the same", parties, text, "always")]
    return [
        PermittedDisclosure(
            "which of its rows all have", parties, "which of one's rows all have", "align = true"
        ),
        PermittedDisclosure(
            "number of rows that all have",
            members,
            "how many rows all have",
            "align = true",
        ),
        PermittedDisclosure(
            "number of its rows",
            () if job.ids.padded else (job.aligning_dealer,),
            "how many rows each has",
            f"ids.padded = {job.ids.padded}" if job.ids.padded else "align = true, not padded",
        ),
        PermittedDisclosure(
            "number of rows that some have",
            (job.aligning_dealer,),
            "how many rows every two or more have in common",
            "align = true",
        ),
    ]


def _permit_label_disclosures(job: Job, recipients: tuple[str, ...]) -> list[PermittedDisclosure]:
    """Return disclosures of label properties to recipients other than the label holder."""
    if not recipients and not job.export:
        return []
    receivers = tuple(dict.fromkeys((*recipients, *([job.export] if job.export else []))))
    return [
        PermittedDisclosure(disclosure, receivers, text, "receives what the label's holder has")
        for disclosure, text in (
            ("centre and scale of the label", "the label's centre and scale"),
            ("names of the classes", "the names of the classes"),
        )
    ]


def _permit_export_disclosures(job: Job) -> list[PermittedDisclosure]:
    receivers = (job.export,) if job.export else ()
    setting = f"export = {job.export}" if job.export else "no export"
    return [
        PermittedDisclosure("leaf values", receivers, "leaf values", setting),
        PermittedDisclosure("thresholds", receivers, "thresholds of others", setting),
        PermittedDisclosure(
            "kinds and categories of columns", receivers, "kinds and categories of columns", setting
        ),
    ]


def compare_with_permitted(
    job: Job, disclosures: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return a row for each permitted disclosure with its actual counts, in words.

    Append a row for each disclosure that the job does not permit, with `allowed` false.
    """
    remaining: list[Mapping[str, Any]] = list(disclosures)
    rows: list[dict[str, Any]] = []
    for permitted in list_permitted(job):
        matching = [
            r
            for r in remaining
            if r["what"] == permitted.disclosure and set(r["to"]) <= set(permitted.recipients)
        ]
        remaining = [r for r in remaining if r not in matching]
        rows.append(
            {
                "what": permitted.text,
                "to": format_recipients(permitted.recipients, job),
                "because": permitted.condition,
                "allowed": bool(permitted.recipients),
                "count": sum(r["count"] for r in matching),
                "sentences": [
                    format_disclosure(r["what"], r["to"], r["count"], job) for r in matching
                ],
            }
        )
    for r in remaining:
        sentence = format_disclosure(r["what"], r["to"], r["count"], job)
        rows.append(
            {
                "what": r["what"],
                "to": format_recipients(r["to"], job),
                "because": "no term of this job",
                "allowed": False,
                "count": r["count"],
                "sentences": [sentence],
            }
        )
    return rows


def add_disclosures(ledgers: Iterable[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the disclosures of several runs with added counts."""
    counts: dict[tuple[str, tuple[str, ...]], int] = {}
    for ledger in ledgers:
        for reveal in ledger:
            key = reveal["what"], tuple(reveal["to"])
            counts[key] = counts.get(key, 0) + reveal["count"]
    return [
        {"what": disclosure, "to": list(to), "count": n} for (disclosure, to), n in counts.items()
    ]
