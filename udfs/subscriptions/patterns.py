"""Patterns of subscriptions: RE2 matches what it reads as Java does, all else is unknown.

Brokers match clients by ``java.util.regex`` (KIP-714, "Client metrics configuration"). Arrow matches by RE2, whose time
is linear in the text, whatever the pattern. Of a pattern only the syntax below is taken: literals, escaped
punctuation, ``\\d`` and ``\\w``, ``.``, classes of ASCII characters, groups, alternatives, quantifiers, and ``(?i)`` at
the beginning. Both agree on these for a match of the whole text (tests/data/java_patterns.json has Java's answers).
"""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

_ESCAPED = r"\\[!-/:-@\[-^`{-~]"  # ASCII punctuation
_OF_CLASS = rf"(?:[ !\"#$%'()*+,./0-9:;<=>?@A-Z_`a-z{{|}}~]|{_ESCAPED})"  # no `[`, `&`, `^`: sets in sets
_CLASS = rf"\[\^?-?(?:\\[dw]|{_OF_CLASS}(?:-{_OF_CLASS})?)+-?\]"
_TOKEN = re.compile(
    rf"(?P<dot>\.)|(?P<open>\((?!\?)|\(\?:)|(?P<bar>\|)|(?P<close>\))"
    rf"|(?P<class>{_CLASS})|{_ESCAPED}|\\[dDwW]|(?P<literal>[^\\^$.|?*+()\[\]{{}}])"
)
# `?` behind it changes nothing for a match of the whole text. Possessive ones and repeated repetitions are Java's own.
_QUANTIFIER = re.compile(r"(?:[?*+]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})\??(?![?*+{])")
_DOT = r"[^\n\r\x{85}\x{2028}\x{2029}]"  # all but Java's line terminators
_ANY_CASE = "(?i)"  # of ASCII letters; RE2's is of all letters
_CLASS_OF_ANY_CASE = re.compile(r"\[(\^?)((?:[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]|[A-Za-z0-9_.])+)\]")


class PatternError(ValueError):
    """A pattern that can't be used; the message names the pattern and the place."""


class InvalidPatternError(PatternError):
    """Java refuses the pattern, so a broker does."""


class UnsupportedPatternError(PatternError):
    """What Java matches by the pattern, if it takes it, can't be said here with certainty."""


def matches(texts: pa.Array, pattern: str) -> pa.BooleanArray:
    """Which texts Java's ``Matcher.matches`` matches; NULL for NULL.

    Raises:
        InvalidPatternError, UnsupportedPatternError: as `checked`.
    """
    return pc.match_substring_regex(texts, checked(pattern))


@lru_cache(maxsize=4096)
def checked(pattern: str) -> str:
    """A pattern of RE2 that finds a text if Java's pattern matches the whole of it.

    Raises:
        InvalidPatternError: parentheses without their other half.
        UnsupportedPatternError: syntax that isn't among what both read alike.
    """
    any_case = pattern.startswith(_ANY_CASE)
    # Anchors at the ends say nothing more in a match of the whole text.
    text = pattern.removeprefix(_ANY_CASE).removeprefix("^")
    if re.search(r"(?<!\\)(?:\\\\)*\$\Z", text):
        text = text[:-1]
    translated, position, depth = "", 0, 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or (any_case and token["class"] and not _CLASS_OF_ANY_CASE.fullmatch(token[0])):
            raise UnsupportedPatternError(f"pattern {pattern!r}: {text[position:]!r} may mean something else in Java")
        depth += (token["open"] is not None) - (token["close"] is not None)
        if depth < 0:
            raise InvalidPatternError(f"pattern {pattern!r} is no regular expression of Java: unmatched closing ')'")
        translated += _translated(token, any_case)
        position = token.end()
        if not token["open"] and not token["bar"] and (quantifier := _QUANTIFIER.match(text, position)):
            translated += quantifier[0]
            position = quantifier.end()
    if depth:
        raise InvalidPatternError(f"pattern {pattern!r} is no regular expression of Java: unclosed group")
    whole = rf"\A(?:{translated})\z"
    try:
        pc.match_substring_regex(pa.array([""]), whole)
    except pa.ArrowInvalid as error:  # too many repetitions, a range from z to a
        raise UnsupportedPatternError(f"pattern {pattern!r}: {error}") from None
    return whole


def _translated(token: re.Match[str], any_case: bool) -> str:
    if token["open"]:
        return "(?:"
    if token["dot"]:
        return _DOT
    if any_case and token["class"]:
        return _CLASS_OF_ANY_CASE.sub(lambda found: f"[{found[1]}{found[2].lower()}{found[2].upper()}]", token[0])
    if any_case and token["literal"] and token[0].isascii() and token[0].isalpha():
        return f"[{token[0].lower()}{token[0].upper()}]"
    return token[0]
