"""Characters of a Java regular expression: its escapes, character classes and quoting, as sets of code points."""

from __future__ import annotations

from string import ascii_letters, digits, punctuation

from kafka_telemetry_lake.udfs.subscriptions import code_points
from kafka_telemetry_lake.udfs.subscriptions.code_points import LAST, Ranges

DIGIT = code_points.of(digits)
LETTER = code_points.of(ascii_letters)
WORD = code_points.of(ascii_letters + digits + "_")
SPACE = code_points.of(" \t\n\x0b\f\r")
VERTICAL = code_points.of("\n\x0b\f\r\x85\u2028\u2029")
HORIZONTAL = code_points.union(code_points.of(" \t\xa0\u1680\u180e\u202f\u205f\u3000"), ((0x2000, 0x200A),))

CLASS_ESCAPES = {"d": DIGIT, "s": SPACE, "w": WORD, "v": VERTICAL, "h": HORIZONTAL}
CHARACTER_ESCAPES = {"a": 0x07, "e": 0x1B, "f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09}
# \p{...} of Java's table "POSIX character classes (US-ASCII only)".
POSIX = {
    "Lower": ((0x61, 0x7A),),
    "Upper": ((0x41, 0x5A),),
    "ASCII": ((0x00, 0x7F),),
    "Alpha": LETTER,
    "Digit": DIGIT,
    "Alnum": code_points.union(LETTER, DIGIT),
    "Punct": code_points.of(punctuation),
    "Graph": ((0x21, 0x7E),),
    "Print": ((0x20, 0x7E),),
    "Blank": code_points.of(" \t"),
    "Cntrl": ((0x00, 0x1F), (0x7F, 0x7F)),
    "XDigit": code_points.of(digits + "abcdefABCDEF"),
    "Space": SPACE,
}
UNSUPPORTED_ESCAPES = {
    "b": "word boundary: its meaning depends on the broker's Java version",
    "B": "word boundary: its meaning depends on the broker's Java version",
    "G": "end of the previous match",
    "k": "back reference",
    "N": "character by name: depends on the Unicode version of the broker's Java",
    "R": "linebreak matcher",
    "X": "grapheme cluster: depends on the Unicode version of the broker's Java",
}


class PatternError(ValueError):
    """A pattern that can't be used; the message names the pattern and the construct."""


class InvalidPatternError(PatternError):
    """Java refuses the pattern, so a broker does."""


class UnsupportedPatternError(PatternError):
    """Java takes the pattern, but what it matches can't be said here with certainty."""


class PatternText:
    """The text of a pattern, read from the left: an escape or a class at a time, under the flags in force."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.text = _without_quoting(pattern)
        self.position = 0
        self.flags: frozenset[str] = frozenset()

    # Reading

    def peek(self, ahead: int = 0) -> str:
        """The next character; empty at the end."""
        return self.text[self.position + ahead : self.position + ahead + 1]

    def take(self) -> str:
        char = self.peek()
        self.position += 1
        return char

    def accept(self, text: str) -> bool:
        matches = self.text.startswith(text, self.position)
        if matches:
            self.position += len(text)
        return matches

    def take_while(self, allowed: str, most: int) -> str:
        taken = ""
        while len(taken) < most and self.peek() and self.peek() in allowed:
            taken += self.take()
        return taken

    def invalid(self, what: str) -> InvalidPatternError:
        return InvalidPatternError(f"pattern {self.pattern!r} is no regular expression of Java: {what}")

    def unsupported(self, construct: str, why: str) -> UnsupportedPatternError:
        return UnsupportedPatternError(f"pattern {self.pattern!r}: {construct} ({why}) is not supported here")

    # Characters

    def cased(self, point: int) -> Ranges:
        points: Ranges = ((point, point),)
        return code_points.ascii_case_folded(points) if "i" in self.flags else points

    def escape(self, in_class: bool = False) -> int | Ranges:
        """An escape after its backslash: a character or a class."""
        char = self.take()
        if char == "":
            raise self.invalid("ends with a backslash")
        if char in ("p", "P"):
            return self._property(complement=char == "P")
        if char.lower() in CLASS_ESCAPES and char in ascii_letters:
            points = CLASS_ESCAPES[char.lower()]
            return code_points.negated(points) if char.isupper() else points
        if char in CHARACTER_ESCAPES:
            return CHARACTER_ESCAPES[char]
        if char in "0xuc":
            return self._coded(char)
        if char in digits and not in_class:
            raise self.unsupported(f"'\\{char}'", "back reference")
        if char in UNSUPPORTED_ESCAPES and (char == "N" or not in_class):
            raise self.unsupported(f"'\\{char}'", UNSUPPORTED_ESCAPES[char])
        if char in ascii_letters + digits:
            raise self.invalid(f"illegal escape '\\{char}'")
        return ord(char)

    def _coded(self, kind: str) -> int:
        """A character by its number: ``\\0mnn``, ``\\xhh``, ``\\x{h...h}``, ``\\uhhhh``, or ``\\cX``."""
        hexadecimal = digits + "abcdefABCDEF"
        if kind == "c":
            if not self.peek():
                raise self.invalid("illegal control escape")
            return ord(self.take()) ^ 64
        if kind == "0":
            number = self.take_while("01234567", 3 if self.peek() in ("0", "1", "2", "3") else 2)
            base, complete = 8, bool(number)
        elif kind == "x" and self.accept("{"):
            number = self.take_while(hexadecimal, len(self.text))
            base, complete = 16, bool(number) and self.accept("}") and int(number, 16) <= LAST
        else:
            length = 2 if kind == "x" else 4
            number = self.take_while(hexadecimal, length)
            base, complete = 16, len(number) == length
        if not complete:
            raise self.invalid(f"illegal escape '\\{kind}'")
        point = int(number, base)
        if 0xD800 <= point <= 0xDFFF:
            raise self.unsupported(f"'\\{kind}{number}'", "half of a surrogate pair")
        return point

    def _property(self, complement: bool) -> Ranges:
        if self.accept("{"):
            end = self.text.find("}", self.position)
            if end <= self.position:
                raise self.invalid("unclosed or empty character family")
            name = self.text[self.position : end]
            self.position = end + 1
        elif not (name := self.take()):
            raise self.invalid("empty character family")
        if name not in POSIX:
            raise self.unsupported(f"'\\p{{{name}}}'", "depends on the Unicode version of the broker's Java")
        if name in ("Lower", "Upper") and "i" in self.flags:
            raise self.unsupported(f"'\\p{{{name}}}' under flag 'i'", "depends on the broker's Java version")
        return code_points.negated(POSIX[name]) if complement else POSIX[name]

    def character_class(self) -> Ranges:
        """A class after its bracket."""
        complement = self.accept("^")
        points: Ranges | None = None
        nested = False
        while self.peek() != "]" or points is None:
            if not self.peek():
                raise self.invalid("unclosed character class")
            if self.accept("&&"):
                points = self._intersected(points)
                nested = True
            elif self.accept("["):
                points = code_points.union(points or (), self.character_class())
                nested = True
            else:
                points = code_points.union(points or (), self._class_range())
        self.take()
        if complement and nested:
            raise self.unsupported("'[^...[...]]'", "depends on the broker's Java version")
        return code_points.negated(points) if complement else points

    def _intersected(self, left: Ranges | None) -> Ranges:
        """``[x&&[y]]``; Java's rules for longer intersections have changed and are odd."""
        if left is None or not self.accept("["):
            raise self.unsupported("'&&'", "an intersection other than [x&&[y]]")
        right = self.character_class()
        if self.peek() != "]":
            raise self.unsupported("'&&'", "an intersection other than [x&&[y]]")
        return code_points.intersection(left, right)

    def _class_range(self) -> Ranges:
        """One character, range or escape of a class."""
        first = self._class_character()
        if not isinstance(first, int):
            return first
        if self.peek() != "-" or self.peek(1) in ("[", "]"):
            return self.cased(first)
        self.take()
        if not self.peek():
            raise self.invalid("unclosed character class")
        last = self._class_character()
        if not isinstance(last, int) or last < first:
            raise self.invalid("illegal character range")
        points: Ranges = ((first, last),)
        return code_points.ascii_case_folded(points) if "i" in self.flags else points

    def _class_character(self) -> int | Ranges:
        char = self.take()
        if char != "\\":
            return ord(char)
        if self.peek() == "v" and (self.peek(1) == "-" or self.peek(-2) == "-"):
            raise self.unsupported("'\\v' in a range", "another character than '\\v' elsewhere")
        return self.escape(in_class=True)


def _without_quoting(pattern: str) -> str:
    """The pattern with ``\\Q...\\E`` written as escapes, which Java does before it parses."""
    text = ""
    position = 0
    while position < len(pattern):
        pair = pattern[position : position + 2]
        if pair == "\\Q":
            end = pattern.find("\\E", position + 2)
            quoted = pattern[position + 2 : end if end >= 0 else len(pattern)]
            text += "".join(_quoted(char, first=index == 0) for index, char in enumerate(quoted))
            position = end + 2 if end >= 0 else len(pattern)
        else:
            step = 2 if pair[0] == "\\" else 1
            text += pattern[position : position + step]
            position += step
    return text


def _quoted(char: str, first: bool) -> str:
    if char in ascii_letters:
        return char
    if char in digits:  # the first may follow an escape by number
        return f"\\x3{char}" if first else char
    return "\\" + char
