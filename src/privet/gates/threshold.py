"""Comparing masked values with public numbers: how many of them each value reaches.

The mask's bits are known to the dealer, so `public < mask` is a comparison of a public number with
dealt bits. Cut into digits, each digit is looked up in a dealt table at the public digit.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from privet.arithmetic.bit_planes import pack_bits, packed_length, unpack_bits
from privet.arithmetic.rings import BITS, Z8
from privet.arithmetic.shares import Elements, Share
from privet.gates.gate import Gate
from privet.gates.masked import Masked
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party

Monomials = dict[frozenset[int], Any]
"""Public coefficients of products of mask bits."""

DIGIT_BITS = 8


class CountReached(Gate):
    """Count, for each masked value, how many public thresholds it reaches: a share over Z8.

    Values are taken modulo 2^width, and x - t lies between -2^(width-1) and 2^(width-1).

    1. x - t is negative if the top bits of c = public - t and of the mask r and a borrow, whether
       the rest of c is below the rest of r, add up to an odd number.
    2. The dealer deals, for each digit of r, tables of [digit > d] and [digit = d] for every d;
       participants look c's digits up. One table serves all thresholds.
    3. Open the looked-up bits under fresh masks.
    4. borrow = sum over digits of [digit > d] times [digit = d] of all higher ones: a polynomial in
       masked bits, whose products of masks are dealt, with the sign of r's top bit in them.

    Cost: one opening of 2L - 1 bits a comparison, for L digits. Reveals: nothing. Error: none.
    """

    name = "count reached"

    def deal(
        self,
        dealer: Dealer,
        x: Masked,
        *,
        thresholds: tuple[int, ...],
        width: int,
        digit: int = DIGIT_BITS,
    ) -> Share:
        """Deal tables of digits, masks of bits, and products of them."""
        r = x.mask.array.reshape(-1)
        count, bits = len(r), _digit_bits(width, digit)
        for i, (start, length) in enumerate(bits):
            value = (r >> r.dtype.type(start)) & r.dtype.type((1 << length) - 1)
            options = np.arange(1 << length, dtype=r.dtype)[:, None]
            tables = [value > options] + ([] if i == 0 else [value == options])
            for table in tables:
                dealer.deal(pack_bits(table.astype(np.uint8)), BITS)
        top = ((r >> r.dtype.type(width - 1)) & r.dtype.type(1)).astype(np.uint8)
        drawn = dealer.uniform(_bit_shape(len(bits), len(thresholds), count), BITS).array
        beta = unpack_bits(drawn, count)
        sign = np.uint8(1) - np.uint8(2) * top
        products = [
            np.broadcast_to(prod((beta[i] for i in sorted(key)), start=sign), beta.shape[1:])
            for key in _keys(len(bits))
        ]
        dealer.deal(top, Z8)
        dealer.deal(np.stack(products), Z8)
        return Share.unknown(x.shape, Z8)

    def run(
        self,
        party: Party,
        x: Masked,
        *,
        thresholds: tuple[int, ...],
        width: int,
        digit: int = DIGIT_BITS,
    ) -> Share:
        """Look digits up, open them masked, and add products up."""
        public = x.public.array.reshape(-1)
        count, bits = len(public), _digit_bits(width, digit)
        kind = public.dtype.type
        shifts = np.array(thresholds, dtype=np.int64).astype(public.dtype)
        c = public[None, :] - shifts[:, None]  # (thresholds, count)
        looked = []
        places = np.arange(count)
        for i, (start, length) in enumerate(bits):
            chosen = ((c >> kind(start)) & kind((1 << length) - 1)).astype(np.intp)
            for _ in range(1 if i == 0 else 2):
                shape = (1 << length, packed_length(count))
                table = unpack_bits(party.derived(shape, BITS).part, count)
                looked.append(table[chosen, places])
        drawn = party.uniform(_bit_shape(len(bits), len(thresholds), count), BITS)
        packed = pack_bits(np.stack(looked))
        (opened,) = party.open(Share(packed, BITS) ^ drawn)
        d = unpack_bits(opened, count)
        keys = _keys(len(bits))
        top = party.derived((count,), Z8).part
        products = party.derived((len(keys), len(thresholds), count), Z8).part
        odd = ((c >> kind(width - 1)) & kind(1)).astype(np.uint8)
        flip = np.uint8(1) - np.uint8(2) * odd
        borrow = np.zeros(c.shape, dtype=np.uint8)
        coefficients = _borrow(d, len(bits))
        for key, dealt in zip(keys, products, strict=True):
            borrow += coefficients[key] * dealt
        # Whether x - t is negative is odd ^ (top ^ borrow), and top ^ borrow = top + sign borrow.
        reached = np.negative(flip * (top[None, :] + borrow))
        if party.index == 0:
            reached += np.uint8(1) - odd
        return Share(reached.sum(axis=0, dtype=np.uint8).reshape(x.shape), Z8)

    def count(
        self,
        counter: Counter,
        x: Masked,
        *,
        thresholds: tuple[int, ...],
        width: int,
        digit: int = DIGIT_BITS,
    ) -> Share:
        """Count tables of digits, the opening, and products of masks."""
        count, bits = prod(x.shape), _digit_bits(width, digit)
        for i, (_, length) in enumerate(bits):
            table = (1 << length, packed_length(count))
            counter.derive(BITS, *[table] * (1 if i == 0 else 2))
        counter.open(Elements.unknown(_bit_shape(len(bits), len(thresholds), count), BITS))
        counter.derive(Z8, (count,), (len(_keys(len(bits))), len(thresholds), count))
        return Share.unknown(x.shape, Z8)


def _digit_bits(width: int, digit: int) -> list[tuple[int, int]]:
    """Return where the digits of the lower width - 1 bits start, and how long they are."""
    return [(s, min(digit, width - 1 - s)) for s in range(0, width - 1, digit)]


def _bit_shape(n_digits: int, thresholds: int, count: int) -> tuple[int, ...]:
    return (2 * n_digits - 1, thresholds, packed_length(count))


def _bit(digit: int, equal: bool) -> int:
    """Return which looked-up bit is a digit's `greater` or `equal`: the lowest has no `equal`."""
    return 0 if digit == 0 else 2 * digit - 1 + equal


def _keys(n_digits: int) -> list[frozenset[int]]:
    """Return all products of mask bits that the borrow may need, the empty one included."""
    found: dict[frozenset[int], None] = {}
    above: list[frozenset[int]] = [frozenset()]
    for i in reversed(range(n_digits)):
        for key in above:
            found[key] = None
            found[key | {_bit(i, False)}] = None
        if i:
            above += [key | {_bit(i, True)} for key in above]
    return list(found)


def _borrow(d: npt.NDArray[np.uint8], n_digits: int) -> Monomials:
    """Expand the borrow into products of masks; a masked bit is d + (1 - 2d) beta."""
    slope = np.uint8(1) - np.uint8(2) * d

    def times(terms: Monomials, bit: int) -> Monomials:
        result: Monomials = {}
        for key, coefficient in terms.items():
            result[key] = coefficient * d[bit]
            result[key | {bit}] = coefficient * slope[bit]
        return result

    total: Monomials = {}
    above: Monomials = {frozenset(): np.ones(d.shape[1:], dtype=np.uint8)}
    for i in reversed(range(n_digits)):
        for key, coefficient in times(above, _bit(i, False)).items():
            total[key] = total[key] + coefficient if key in total else coefficient
        if i:
            above = times(above, _bit(i, True))
    return total


count_reached = CountReached()
