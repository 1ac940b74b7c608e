"""What a gate is: what the dealer does, what participants do and what it costs, side by side."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from typing_extensions import ParamSpec

from privet.arithmetic.rings import RingArray
from privet.arithmetic.shares import Elements, Share
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime

_Values = ParamSpec("_Values")
_Result = TypeVar("_Result")
_Result_co = TypeVar("_Result_co", covariant=True)
_FirstT = TypeVar("_FirstT")
_SecondT = TypeVar("_SecondT")

OpeningSteps = Generator[Sequence[Share], Sequence[RingArray], _Result]
"""A participant's half of a gate with an opening: yields shares, and is sent what they hold."""


class _Halves(Protocol[_Values, _Result_co]):
    """What a gate is made of. All halves take the same values and return the same kind."""

    name: str

    def deal(
        self, dealer: Dealer, *values: _Values.args, **options: _Values.kwargs
    ) -> _Result_co: ...

    def run(self, party: Party, *values: _Values.args, **options: _Values.kwargs) -> _Result_co: ...

    def count(
        self, counter: CostCounter, *values: _Values.args, **options: _Values.kwargs
    ) -> _Result_co: ...


class Gate:
    """A step of a program that needs the dealer, or the network, or both.

    A gate has a `name` and three halves:

        deal(dealer, ...)     draw masks, and derive from them what the participants need
        run(party, ...)       draw the same, open and compute
        count(counter, ...)   say what is opened and derived

    Called with a runtime, it does the half that the runtime is there for. `deal` and `run` must
    draw the same values from the dealer's randomness in the same order; a running tag catches it if
    they do not. Options, which are public, go by keyword and into the tag.
    """

    def __call__(
        self: _Halves[_Values, _Result_co],
        runtime: Runtime,
        *values: _Values.args,
        **options: _Values.kwargs,
    ) -> _Result_co:
        """Do the half of this gate that the runtime is there for."""
        with runtime.step(self.name):
            runtime.update_tag(_options(options))
            if isinstance(runtime, Party):
                return self.run(runtime, *values, **options)
            if isinstance(runtime, Dealer):
                return self.deal(runtime, *values, **options)
            assert isinstance(runtime, CostCounter)
            return self.count(runtime, *values, **options)


class _OpeningHalves(Protocol[_Values, _Result_co]):
    """What a gate with one opening is made of."""

    name: str

    def deal(
        self, dealer: Dealer, *values: _Values.args, **options: _Values.kwargs
    ) -> _Result_co: ...

    def run(
        self, party: Party, *values: _Values.args, **options: _Values.kwargs
    ) -> OpeningSteps[_Result_co]: ...

    def count(
        self, counter: CostCounter, *values: _Values.args, **options: _Values.kwargs
    ) -> tuple[Sequence[Elements], _Result_co]: ...


@dataclass(frozen=True, eq=False)
class DeferredGate(Generic[_Result_co]):
    """A gate with what it is given, to be opened together with others."""

    gate: Any
    values: tuple[Any, ...]
    options: dict[str, Any]


class OpeningGate:
    """A gate with one opening, which it can share with others that do not depend on it.

    Its `run` is a generator: it draws all that it needs, yields the shares to be opened, and is
    sent what they hold. Its `count` returns what is opened, and the result.
    """

    def __call__(
        self: _OpeningHalves[_Values, _Result],
        runtime: Runtime,
        *values: _Values.args,
        **options: _Values.kwargs,
    ) -> _Result:
        """Do the half of this gate that the runtime is there for."""
        with runtime.step(self.name):
            runtime.update_tag(_options(options))
            if isinstance(runtime, Dealer):
                return self.deal(runtime, *values, **options)
            if isinstance(runtime, CostCounter):
                opened, result = self.count(runtime, *values, **options)
                runtime.count_opening(*opened)
                return result
            assert isinstance(runtime, Party)
            running = self.run(runtime, *values, **options)
            return _finish(running, runtime.open(*next(running)))

    def defer(
        self: _OpeningHalves[_Values, _Result], *values: _Values.args, **options: _Values.kwargs
    ) -> DeferredGate[_Result]:
        """Return this gate with what it is given, for `run_together`."""
        return DeferredGate(self, values, options)


def run_deferred(runtime: Runtime, call: DeferredGate[_Result]) -> _Result:
    """Do a gate with an opening of its own."""
    result: _Result = call.gate(runtime, *call.values, **call.options)
    return result


def run_together(
    runtime: Runtime, one: DeferredGate[_FirstT], other: DeferredGate[_SecondT]
) -> tuple[_FirstT, _SecondT]:
    """Do two gates with one opening for both; neither may need what the other opens."""
    calls = (one, other)

    def each(half: Callable[[DeferredGate[Any]], Any]) -> list[Any]:
        found = []
        for call in calls:
            with runtime.step(call.gate.name):
                runtime.update_tag(_options(call.options))
                found.append(half(call))
        return found

    if isinstance(runtime, Dealer):
        first, second = each(lambda call: call.gate.deal(runtime, *call.values, **call.options))
        return first, second
    if isinstance(runtime, CostCounter):
        counted = each(lambda call: call.gate.count(runtime, *call.values, **call.options))
        runtime.count_opening(*(value for opened, _ in counted for value in opened))
        return counted[0][1], counted[1][1]
    assert isinstance(runtime, Party)
    begun = each(lambda call: _begin(call.gate.run(runtime, *call.values, **call.options)))
    running, shares = [gate for gate, _ in begun], [opened for _, opened in begun]
    opened = runtime.open(*(share for theirs in shares for share in theirs))
    middle = len(shares[0])
    return _finish(running[0], opened[:middle]), _finish(running[1], opened[middle:])


def _begin(running: OpeningSteps[Any]) -> tuple[OpeningSteps[Any], Sequence[Share]]:
    """Let a gate draw what it needs, and return with it what it wants to be opened."""
    return running, next(running)


def _finish(running: OpeningSteps[_Result], opened: Sequence[RingArray]) -> _Result:
    """Send a gate what was opened, and return its result."""
    try:
        running.send(opened)
    except StopIteration as stop:
        result: _Result = stop.value
        return result
    raise AssertionError("a gate opens once")


def _options(options: Any) -> str:
    return str({name: value for name, value in options.items() if not callable(value)})
