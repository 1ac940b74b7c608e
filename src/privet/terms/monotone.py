"""Monotone constraints: features as which grow, scores never fall, or never rise.

A missing value counts as smaller than everything else: it passes every test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator

from privet.errors import ParameterError
from privet.terms.objective import Objective

Monotone = tuple[int, ...]
"""Of every feature: 1 where scores never fall as it grows, -1 where they never rise, 0 if they may
do both. Empty, if all may."""


def _no_truth(sign: object) -> object:
    """Refuse what Python takes for 1 and is not."""
    if isinstance(sign, bool):
        raise ValueError("is neither 1 nor -1")  # as pydantic takes it
    return sign


Constraints = dict[str, Annotated[Literal[1, -1], BeforeValidator(_no_truth)]]
"""Of some columns, by name."""


def settled(monotone: Sequence[int], n_features: int, objective: Objective) -> Monotone:
    """Return constraints as plans have them; raise ParameterError if they cannot be kept.

    Several classes have scores of their own each, and it is their order that counts: one rises as
    much when others fall.
    """
    if not any(monotone):
        return ()
    refuse_several(objective)
    if len(monotone) != n_features:
        raise ParameterError(
            f"monotone: {len(monotone)} constraints for {n_features} features: each needs one, 0 "
            "where there is none"
        )
    wrong = next((sign for sign in monotone if sign not in (-1, 0, 1)), None)
    if wrong is not None:
        raise ParameterError(
            f"monotone: {wrong!r} is none of 1 (scores never fall as a feature grows), -1 (they "
            "never rise) and 0"
        )
    return tuple(int(sign) for sign in monotone)


def refuse_several(objective: Objective) -> None:
    """Raise ParameterError if there is more than one score."""
    if objective.outputs > 1:
        raise ParameterError(
            f"monotone: {objective.outputs} classes have no score that could rise or fall alone; "
            "leave it out, or learn one of two classes or a number"
        )


def by_feature(
    features: Sequence[tuple[str, str]], wanted: Mapping[str, Mapping[str, int]]
) -> list[int]:
    """Return the constraint of every feature, an owner and a name, as its owner's are wanted.

    Raise ParameterError if somebody has no feature of such a name.
    """
    for owner, constraints in wanted.items():
        for name in constraints:
            if (owner, name) in features:
                continue
            others = [other for other, feature in features if feature == name]
            where = f"it is {others[0]}'s" if others else "it is nobody's"
            raise ParameterError(
                f"monotone: {owner} has no feature {name!r}, {where}: name a column of numbers "
                f"that {owner} has"
            )
    return [wanted.get(owner, {}).get(name, 0) for owner, name in features]
