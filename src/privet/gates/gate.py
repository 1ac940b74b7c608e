"""The base classes of gates: the dealer's half, the participant's half and the cost."""

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
"""A participant's half of a gate with an opening: yields shares, and is sent the opened values."""


class _Halves(Protocol[_Values, _Result_co]):
    """The halves of a gate, which take the same values and return the same type."""

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
        count(counter, ...)   count what is opened and derived

    A call runs the half for the given runtime. `deal` and `run` must draw the same values from the
    dealer's randomness in the same order; a running tag detects any difference. Options are public.
    They are passed by keyword and hashed into the tag.
    """

    def __call__(
        self: _Halves[_Values, _Result_co],
        runtime: Runtime,
        *values: _Values.args,
        **options: _Values.kwargs,
    ) -> _Result_co:
        """Run the half of this gate for the given runtime."""
        with runtime.step(self.name):
            runtime.update_tag(_options(options))
            if isinstance(runtime, Party):
                return self.run(runtime, *values, **options)
            if isinstance(runtime, Dealer):
                return self.deal(runtime, *values, **options)
            assert isinstance(runtime, CostCounter)
            return self.count(runtime, *values, **options)


class _OpeningHalves(Protocol[_Values, _Result_co]):
    """The halves of a gate with one opening."""

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
    """A gate with its inputs, to be opened together with another."""

    gate: Any
    values: tuple[Any, ...]
    options: dict[str, Any]


class OpeningGate:
    """A gate with one opening, which it can share with an independent gate.

    `run` is a generator: it makes all its draws, yields the shares to be opened, and is sent the
    opened values. `count` returns the opened shares, and the result.
    """

    def __call__(
        self: _OpeningHalves[_Values, _Result],
        runtime: Runtime,
        *values: _Values.args,
        **options: _Values.kwargs,
    ) -> _Result:
        """Run the half of this gate for the given runtime."""
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
        """Return this gate with its inputs, for `run_together`."""
        return DeferredGate(self, values, options)


def run_deferred(runtime: Runtime, call: DeferredGate[_Result]) -> _Result:
    """Run a deferred gate with a separate opening."""
    result: _Result = call.gate(runtime, *call.values, **call.options)
    return result


def run_together(
    runtime: Runtime, one: DeferredGate[_FirstT], other: DeferredGate[_SecondT]
) -> tuple[_FirstT, _SecondT]:
    """Run two gates with one opening for both; neither must depend on the other's opening."""
    calls = (one, other)

    def run_each(half: Callable[[DeferredGate[Any]], Any]) -> list[Any]:
        found = []
        for call in calls:
            with runtime.step(call.gate.name):
                runtime.update_tag(_options(call.options))
                found.append(half(call))
        return found

    if isinstance(runtime, Dealer):
        first, second = run_each(lambda call: call.gate.deal(runtime, *call.values, **call.options))
        return first, second
    if isinstance(runtime, CostCounter):
        counted = run_each(lambda call: call.gate.count(runtime, *call.values, **call.options))
        runtime.count_opening(*(value for opened, _ in counted for value in opened))
        return counted[0][1], counted[1][1]
    assert isinstance(runtime, Party)
    started = run_each(lambda call: _begin(call.gate.run(runtime, *call.values, **call.options)))
    running, shares = [gate for gate, _ in started], [opened for _, opened in started]
    opened = runtime.open(*(share for group in shares for share in group))
    middle = len(shares[0])
    return _finish(running[0], opened[:middle]), _finish(running[1], opened[middle:])


def _begin(running: OpeningSteps[Any]) -> tuple[OpeningSteps[Any], Sequence[Share]]:
    """Run a gate up to its opening, and return it with the shares to be opened."""
    return running, next(running)


def _finish(running: OpeningSteps[_Result], opened: Sequence[RingArray]) -> _Result:
    """Send the opened values to a gate, and return its result."""
    try:
        running.send(opened)
    except StopIteration as stop:
        result: _Result = stop.value
        return result
    raise AssertionError("a gate opens once")


def _options(options: Any) -> str:
    return str({name: value for name, value in options.items() if not callable(value)})
