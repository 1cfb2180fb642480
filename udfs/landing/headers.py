"""Headers of landing records as Arrow columns: texts, and whole numbers within bounds.

No header makes a record fail. Bytes that aren't UTF-8 are replaced; what isn't the number that it should be is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.landing.contract import HEADERS, MAX_HEADER

_NAMES = pa.array(list(HEADERS))
_PLACES = {name: place for place, name in enumerate(HEADERS)}
_BLANKS = "".join(map(chr, [*range(33), 127]))  # around a number
_SHORT = "^-?[0-9]{1,18}$"  # Arrow reads these, and each fits 64 bits
_DIGITS = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS = 100  # a number with more is out of all bounds, if zeros don't lead it


class Headers:
    """The headers of a batch of records, by the names of the contract. The last of repeated headers counts.

    Args:
        headers: for each record a list of structs with a text `key` and bytes `value`, or NULL.
    """

    def __init__(self, headers: pa.Array) -> None:
        if headers.null_count:  # below a NULL list there may be entries: what `take` makes has none
            headers = headers.take(pa.array(range(len(headers))))
        names, self._values = pc.list_flatten(headers).flatten()
        places = pc.index_in(names, value_set=_NAMES)
        known = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
        records = pc.list_parent_indices(headers).to_numpy()[known]
        self._index = np.full((len(HEADERS), len(headers)), -1)
        # Of the same place NumPy keeps what is assigned last.
        self._index[places.drop_null().to_numpy(), records] = known

    def text(self, name: str) -> pa.Array:
        """The values of a header as text of at most `MAX_HEADER` characters."""
        return _cut(self.whole(name))

    def number(self, name: str, kind: pa.DataType) -> pa.Array:
        """The values of a header as whole numbers; NULL where they aren't, or are beyond the contract's bounds."""
        header = HEADERS[name]
        numbers = whole_numbers(self.whole(name))
        is_valid = pc.and_(pc.greater_equal(numbers, header.least), pc.less_equal(numbers, header.most))
        return pc.if_else(is_valid, numbers, None).cast(kind)

    def whole(self, name: str) -> pa.Array:
        """The values of a header as text of any length."""
        index = self._index[_PLACES[name]]
        return valid_text(self._values.take(pa.array(index, mask=index < 0)))


def valid_text(values: pa.Array) -> pa.Array:
    """Bytes as text; each part that isn't UTF-8 becomes U+FFFD."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return _each(values, lambda value: value.decode("utf-8", "replace"), pa.string())


def whole_numbers(texts: pa.Array) -> pa.Array:
    """Texts as 64-bit numbers; NULL for what is no whole number in digits, or doesn't fit.

    Blanks and control characters around a number don't count.
    """
    is_short = pc.match_substring_regex(texts, _SHORT)
    numbers = pc.if_else(is_short, texts, None).cast(pa.int64())
    if pc.all(is_short).as_py() is not False:  # NULL: there are none
        return numbers
    return pc.coalesce(numbers, _each(pc.if_else(is_short, None, texts), _number, pa.int64()))


def _number(text: str) -> int | None:
    digits = text.strip(_BLANKS)
    sign, plain = digits[:1] if digits[:1] in ("+", "-") else "", digits.lstrip("+-0") or "0"
    if _DIGITS.fullmatch(digits) is None or len(plain) > _MOST_DIGITS:
        return None
    number = -int(plain) if sign == "-" else int(plain)
    return number if -(2**63) <= number < 2**63 else None


def _cut(texts: pa.Array) -> pa.Array:
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    return texts if longest <= MAX_HEADER else pc.utf8_slice_codeunits(texts, 0, MAX_HEADER)


def _each(values: pa.Array, change: Callable[[Any], object], kind: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else change(value) for value in values.to_pylist()], kind)
