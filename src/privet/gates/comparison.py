"""What a comparison of masked values is made of: tables of digits, and answers in dealt bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Z1, Ring, RingArray
from privet.arithmetic.shares import Elements
from privet.runtime.recipes import Half, Recipe
from privet.runtime.runtime import Shape


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Whether values reach thresholds: shape (thresholds, *values).

    Participants know which of the dealt bits the answer is, and whether it is inverted; the dealer
    knows the bits. Neither knows the answer.
    """

    shape: tuple[int, ...]
    digits: int
    which: npt.NDArray[np.intp] | None = None
    straight: npt.NDArray[np.bool_] | None = None
    """Where the answer is the dealt bit; elsewhere it is the other one."""
    masks: tuple[Elements, ...] = ()
    """To dealers: rho, of this shape, and the bit of the values' masks that turns answers round."""

    @property
    def options(self) -> int:
        """How many bits are dealt for every answer."""
        return 1 << (self.digits - 1)

    def __getitem__(self, threshold: int) -> Comparison:
        """Return the answers for one threshold, without that axis."""
        rho, *others = self.masks or (None,)
        return Comparison(
            self.shape[1:],
            self.digits,
            None if self.which is None else self.which[threshold],
            None if self.straight is None else self.straight[threshold],
            () if rho is None else (rho[threshold], *others),
        )


class DigitTable(Recipe):
    """Of a digit of a mask, at every d, what `Compare` looks up.

    Masks: the mask itself, (N,), and the carry into the digit, b ^ c with b at the client and c at
    the servers. The digit is that of S, T's and the carry together: the client shares a one-hot
    vector of S + b, and one of S + 1 - b, of which servers take one, and rotate it by T.
    """

    def __init__(self, start: int, length: int, ring: Ring, *, lowest: bool) -> None:
        self._start, self._length, self._ring = start, length, ring
        self._lowest = lowest
        self._options = np.arange(1 << length)[:, None]

    def shape(self, *masks: Shape) -> Shape:
        """Return one number for every d."""
        return len(self._options), masks[0][0]

    def shared(self, ring: Ring, *masks: Shape) -> list[tuple[Ring, Shape]]:
        """Return a vector for each carry, if there may be one."""
        return [(ring, self.shape(*masks))] * (2 if self._start else 1)

    def alone(self, *s: RingArray) -> RingArray:
        """Compare the digit with every d."""
        value, options = self._digit(s[0]), self._options.astype(s[0].dtype)
        table = (value > options).astype(np.uint8)
        if not self._lowest:
            table += table
            table += value == options
        return table

    def client(self, *s: RingArray) -> list[RingArray]:
        """Return one-hot vectors, for either carry."""
        digit = self._digit(s[0]).astype(np.intp)
        if not self._start:
            return [self._hot(digit)]
        carry = Z1.reduce(s[1]).astype(np.intp)
        return [self._hot(digit + carry), self._hot(digit + 1 - carry)]

    def server(self, half: Half) -> RingArray:
        """Choose, rotate, and add up."""
        hot = half.shared[0]
        if self._start:
            hot = np.where(Z1.reduce(half.t[1]).astype(bool), half.shared[1], hot)
        digit = self._digit(half.t[0])
        for bit in range(self._length):  # bit by bit: faster than to look every entry up
            taken = (digit >> digit.dtype.type(bit) & digit.dtype.type(1)).astype(np.uint8)
            hot = hot ^ ((np.roll(hot, 1 << bit, axis=0) ^ hot) & (np.uint8(0) - taken))
        greater = np.zeros_like(hot)
        for d in reversed(range(len(hot) - 1)):
            np.add(greater[d + 1], hot[d + 1], out=greater[d])
        return greater if self._lowest else np.asarray(greater + greater + hot)

    def _digit(self, part: RingArray) -> RingArray:
        kind = part.dtype.type
        found: RingArray = (part >> kind(self._start)) & kind((1 << self._length) - 1)
        return found

    def _hot(self, digit: npt.NDArray[np.intp]) -> RingArray:
        options = len(self._options)
        return np.asarray((digit & (options - 1)) == self._options, dtype=np.uint8)


class Answers:
    """The dealt bits of a comparison, (options, *shape), as recipes make them of its masks.

    Bit k is the top bit of k - rho, turned round by a bit of the values' masks.
    """

    def __init__(self, reached: Comparison) -> None:
        self._half = reached.options
        self._k = np.arange(self._half).reshape(-1, *[1] * len(reached.shape))

    def of_s(self, rho: RingArray, top: RingArray) -> RingArray:
        """Return the bits that follow from S."""
        k = self._k.astype(np.uint8)
        bits = ((k - rho) & np.uint8(2 * self._half - 1)) >= np.uint8(self._half)
        return np.asarray(bits ^ Z1.reduce(top))

    def moved(
        self, shared: RingArray, rho: RingArray, top: RingArray
    ) -> tuple[RingArray, npt.NDArray[np.bool_]]:
        """Return shares of the bits, or of multiples of them, and where these are inverted.

        From those that follow from S: (..., options, *shape).
        """
        k = (self._k - rho.astype(np.intp)) & (2 * self._half - 1)
        inverted = (k >= self._half) ^ Z1.reduce(top).astype(bool)
        where = k & (self._half - 1)
        axis = shared.ndim - where.ndim
        where = where.reshape(*[1] * axis, *where.shape)
        return np.take_along_axis(shared, where, axis=axis), inverted
