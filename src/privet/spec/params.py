"""Hyper-parameters, which all participants agree on before training.

This is the only list of them, with their defaults. Jobs, estimators and commands use it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import AfterValidator, Field, model_validator
from pydantic.fields import FieldInfo
from typing_extensions import Self

from privet.arrays import FloatArray
from privet.objectives.base import MAX_LABEL, Objective
from privet.objectives.regression import MAX_CLASSES, OBJECTIVES, create_objective
from privet.schema import Config, quote_untrusted

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _known(task: str) -> str:
    if task not in OBJECTIVES:
        raise ValueError(f"{quote_untrusted(task)!r} is none of {', '.join(OBJECTIVES)}")
    return task


MAX_TABLES = 10_000
TableCount = Annotated[int, Field(ge=1, le=MAX_TABLES)]
MaskKind = Literal["auto", "uniform", "lattice"]
"""The masks of values that are summed over rows."""
Task = Annotated[str, AfterValidator(_known)]
"""The name of an objective in jobs and files."""


class Params(Config):
    """The hyper-parameters of one training.

    The defaults are for users; the paper's experiments set `learning_rate=1`. A table costs a
    federation seconds, so the default is the smallest number of tables at which a moderate rate
    already does well (docs/decisions/0003-defaults.md).
    """

    task: Task
    """The objective's name."""
    classes: Annotated[int, Field(ge=2, le=MAX_CLASSES)] = 2
    """How many values the label of a classification has. All know, since every one of them has
    scores of its own, unless there are two."""
    tables: Annotated[TableCount, Field(description="How many decision tables.")] = 50
    """T: trained one after the other."""
    depth: Annotated[int, Field(ge=1, le=10, description="How many tests in a table, 1 to 10.")] = 5
    """D: a table has 2^D leaf values."""
    buckets: Annotated[
        int, Field(ge=2, le=256, description="How many buckets a feature, 2 to 256.")
    ] = 32
    """B: into how many buckets, at most, the owner of a feature cuts it."""
    l2: Annotated[float, Field(gt=0, description="Regularisation of the leaf values (lambda).")] = (
        1.0
    )
    """Lambda: added to every sum of second derivatives. Positive, so that no quotient is 0/0."""
    learning_rate: Annotated[
        float, Field(ge=1e-9, le=1, description="Factor on the leaf values; 1 is the paper's.")
    ] = 0.3
    """As small as leaf values have bits for, or more: with less, no score would ever move."""
    base_score: Annotated[
        float | None,
        Field(
            ge=-MAX_LABEL,
            le=MAX_LABEL,
            description="Score before the first table; by default the mean label, or its log-odds.",
        ),
    ] = None
    """None: the label's mean in a regression, the log-odds of each class in a classification, which
    only the label's holder needs to know."""
    min_child_weight: Annotated[
        float,
        Field(
            ge=0,
            description="A side of a test or a leaf with a smaller sum of second derivatives (in a "
            "regression: with fewer rows) counts for nothing.",
        ),
    ] = 0.0
    """It adds nothing to a test's score, and a leaf's value is 0."""
    min_gain: Annotated[
        float, Field(ge=0, description="A level whose best test gains less tests nothing.")
    ] = 0.0
    """By how much a test must lower the loss, to second order. All learn where a level tests
    nothing: everything passes."""
    subsample: Annotated[
        float, Field(gt=0, le=1, description="Share of the rows that each table is trained on.")
    ] = 1.0
    """Each table draws others, by a public coin (`draws`)."""
    colsample: Annotated[
        float, Field(gt=0, le=1, description="Share of the features that each table may test.")
    ] = 1.0
    """Each table draws others, by the same coin."""
    validation: Annotated[
        float,
        Field(ge=0, lt=1, description="Share of the rows set aside to watch the loss on."),
    ] = 0.0
    """After every table the label's holder learns the loss on them. They are drawn by `seed`."""
    patience: Annotated[
        int | None,
        Field(ge=1, description="Stop after so many tables without a smaller loss on these rows."),
    ] = None
    """The tables up to the smallest loss are kept. None: all tables are trained and kept."""
    masks: Annotated[
        MaskKind,
        Field(description="Masks of rows: uniform, lattice (for many rows), or auto."),
    ] = "auto"
    """Lattice ones (docs/decisions/0036-lattice-masks.md) assume that ring-LWE is hard. What `auto`
    takes is told before a training starts."""
    seed: Annotated[
        int,
        Field(
            ge=0, lt=1 << 32, description="Chooses rows and features that are drawn or set aside."
        ),
    ] = 0
    """What all public coins are tossed from: the same come up everywhere."""

    @model_validator(mode="after")
    def _has_an_objective(self) -> Self:
        create_objective(self.task, self.classes)
        return self

    @property
    def objective(self) -> Objective:
        """The objective that is learned."""
        return create_objective(self.task, self.classes)

    def compute_initial_scores(
        self, label: FloatArray, sample_weight: FloatArray | None = None
    ) -> FloatArray:
        """Return the initial scores of all samples: (K,)."""
        if self.base_score is None:
            return self.objective.compute_initial_scores(label, sample_weight)
        return np.full(self.objective.n_outputs, self.base_score)

    @property
    def n_leaves(self) -> int:
        """2^D: the leaf values of a table."""
        return 1 << self.depth

    @property
    def max_cut_count(self) -> int:
        """B - 1: the most candidate splits of one feature."""
        return self.buckets - 1


def list_hyper_parameters() -> dict[str, FieldInfo]:
    """Return all hyper-parameters by name, without the task and its classes."""
    excluded = ("task", "classes")
    return {name: field for name, field in Params.model_fields.items() if name not in excluded}


def with_hyper_parameters(
    annotation: Callable[[FieldInfo], Any] = lambda field: field.annotation,
    also: Callable[..., Any] | None = None,
) -> Callable[[_Function], _Function]:
    """Decorate a function of `**params` so that its signature names every hyper-parameter.

    Code that reads signatures, such as scikit-learn and the command line, then sees all
    hyper-parameters with their defaults, including new ones. A parameter that the function declares
    itself stays as it is. The keywords of `also`, another such function that receives the remaining
    arguments, are added in the same way.
    """

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function, eval_str=True)
        declared = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        fields = {k: v for k, v in list_hyper_parameters().items() if k not in signature.parameters}
        if also is not None:
            others = inspect.signature(also).parameters.values()
            declared += [p for p in others if p.kind is p.KEYWORD_ONLY and p.name not in fields]
        annotations = {name: annotation(field) for name, field in fields.items()}
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=annotations[name],
            )
            for name, field in fields.items()
        ]
        function.__signature__ = signature.replace(parameters=[*declared, *added])  # type: ignore[attr-defined]
        hints = {p.name: p.annotation for p in declared if p.annotation is not p.empty}
        function.__annotations__ = {
            **hints,
            **annotations,
            "return": signature.return_annotation,
        }
        return function

    return decorate


DEFAULT_PROTOCOL = "masked"
