"""Java's regular expressions in Python: what means the same on every broker is translated, the rest is refused.

Brokers match clients by ``java.util.regex`` (KIP-714, "Client metrics configuration"). Its syntax looks like
Python's and differs in details (line terminators, ASCII classes, flags in mid-pattern, possessive groups), so patterns
are parsed as Java parses them and written anew. The reference is OpenJDK's ``Pattern`` of Java 9 and later.
"""

from __future__ import annotations

import re
from functools import lru_cache
from string import ascii_letters, digits

from kafka_telemetry_lake.udfs.subscriptions import code_points
from kafka_telemetry_lake.udfs.subscriptions.code_points import LAST, Ranges
from kafka_telemetry_lake.udfs.subscriptions.java_characters import PatternText, UnsupportedPatternError

ALL: Ranges = ((0, LAST),)
LINE_END = code_points.of("\n\r\x85\u2028\u2029")
UNSUPPORTED_FLAGS = {
    "m": "multiline mode",
    "u": "Unicode case: depends on the Unicode version of the broker's Java",
    "U": "Unicode classes: depend on the Unicode version of the broker's Java",
    "c": "canonical equivalence",
    "x": "comments mode",
}
# What `$` and `\Z` mean: at the end, or before a line terminator that ends the text, but not inside \r\n.
FINAL_LINE_END = r"(?:\Z|(?=\r\n\Z)|(?=[\r\x85\u2028\u2029]\Z)|(?=\n\Z)(?<!\r))"
UNIX_FINAL_LINE_END = r"(?:\Z|(?=\n\Z))"
MOST_REPETITIONS = 2**31 - 1


@lru_cache(maxsize=4096)
def compile_java(pattern: str) -> re.Pattern[str]:
    """A Python pattern whose ``fullmatch`` is Java's ``Matcher.matches``; it has no groups.

    Raises:
        InvalidPatternError: Java doesn't compile it either.
        UnsupportedPatternError: it uses what isn't translated.
    """
    translated = _Translator(pattern).translate()
    try:
        return re.compile(translated)
    except re.error as error:  # look-behind of several widths, which Java can do within bounds
        raise UnsupportedPatternError(f"pattern {pattern!r}: {error.msg}: not supported here") from None


class _Translator(PatternText):
    """Recursive descent over one pattern, after OpenJDK's ``Pattern.expr``, ``sequence``, ``atom`` and ``clazz``."""

    def __init__(self, pattern: str) -> None:
        super().__init__(pattern)
        self.names: set[str] = set()
        self.assertions = 0

    def translate(self) -> str:
        translated = self._alternatives()
        if self.position < len(self.text):
            raise self.invalid("unmatched closing ')'")
        return translated

    def _alternatives(self) -> str:
        parts = [self._sequence()]
        while self.accept("|"):
            parts.append(self._sequence())
        return "|".join(parts)

    def _sequence(self) -> str:
        parts: list[str] = []
        while self.peek() not in ("", "|", ")"):
            parts.append(self._term())
        return "".join(parts)

    def _term(self) -> str:
        """One atom with its quantifier."""
        char = self.take()
        if char in "?*+":
            raise self.invalid(f"dangling {char!r}")
        if char == "{":
            raise self.unsupported(repr(char), "a repetition of nothing")
        if char == "(":
            return self._group()
        if char == "\\" and self.peek() in ("A", "z", "Z"):
            char += self.take()
        anchors = {"^": r"\A", "\\A": r"\A", "\\z": r"\Z", "$": self._final_line_end(), "\\Z": self._final_line_end()}
        if char in anchors:
            return self._assertion(anchors[char], char)
        if char == ".":
            return self._single(self._dot())
        if char == "[":
            return self._single(self.character_class())
        point = self.escape() if char == "\\" else ord(char)
        return self._single(self.cased(point) if isinstance(point, int) else point)

    def _single(self, points: Ranges) -> str:
        quantifier, _ = self._quantifier()
        return code_points.python_pattern(points) + quantifier

    def _assertion(self, translated: str, construct: str) -> str:
        quantifier, _ = self._quantifier()
        if quantifier:
            raise self.unsupported(f"{construct!r} with a quantifier", "a repetition of nothing")
        self.assertions += 1
        return translated

    def _quantifier(self) -> tuple[str, bool]:
        """The quantifier as Python writes it, and whether it is possessive."""
        if self.peek() in ("?", "*", "+"):
            quantifier = self.take()
        elif self.accept("{"):
            quantifier = self._repetitions()
        else:
            return "", False
        if self.peek() in ("?", "+"):
            quantifier += self.take()
        return quantifier, len(quantifier) > 1 and quantifier.endswith("+")

    def _repetitions(self) -> str:
        least = self.take_while(digits, 20)
        most = least
        if not least:
            raise self.invalid("illegal repetition")
        unbounded = False
        if self.accept(","):
            most = self.take_while(digits, 20)
            unbounded = not most
        if not self.accept("}"):
            raise self.invalid("unclosed repetition")
        if int(least) > MOST_REPETITIONS or (not unbounded and not int(least) <= int(most) <= MOST_REPETITIONS):
            raise self.invalid("illegal repetition range")
        return "{" + least + ("," + most if most != least else "") + "}"

    def _group(self) -> str:
        """A group after its parenthesis. Groups don't capture: nothing translated refers to them."""
        flags = self.flags
        assertions = self.assertions
        opening = "(?:"
        if self.accept("?"):
            for kind in (":", "=", "!", ">", "<=", "<!"):
                if self.accept(kind):
                    opening = f"(?{kind}"
                    break
            else:
                if self.accept("<"):
                    self._group_name()
                elif self._set_flags():
                    return ""
        body = self._alternatives()
        if not self.accept(")"):
            raise self.invalid("unclosed group")
        self.flags = flags
        if opening not in ("(?:", "(?>"):
            return self._assertion(f"{opening}{body})", opening)
        quantifier, possessive = self._quantifier()
        if not quantifier:
            return f"{opening}{body})"
        if self.assertions > assertions and not quantifier.startswith("?"):
            raise self.unsupported("an anchor or look-around in a repeated group", "Java misses some matches")
        # Java never goes back into a possessive group's earlier rounds.
        return f"(?:{'(?>' if possessive else opening}{body})){quantifier}"

    def _group_name(self) -> None:
        name = self.take_while(ascii_letters + digits, len(self.text))
        if not name or name[0] not in ascii_letters or not self.accept(">"):
            raise self.invalid("bad name of a group")
        if name in self.names:
            raise self.invalid(f"group {name!r} is already defined")
        self.names.add(name)

    def _set_flags(self) -> bool:
        """Inline flags; true when they hold to the end of the enclosing group, false when they open one."""
        on = True
        while self.peek() not in ("", ")", ":"):
            flag = self.take()
            if flag == "-" and on:
                on = False
            elif flag in UNSUPPORTED_FLAGS:
                raise self.unsupported(f"flag {flag!r}", UNSUPPORTED_FLAGS[flag])
            elif flag in ("i", "s", "d"):
                self.flags = self.flags | {flag} if on else self.flags - {flag}
            else:
                raise self.invalid(f"unknown inline flag {flag!r}")
        if not self.peek():
            raise self.invalid("unclosed group")
        return self.take() == ")"

    def _dot(self) -> Ranges:
        if "s" in self.flags:
            return ALL
        return code_points.negated(code_points.of("\n") if "d" in self.flags else LINE_END)

    def _final_line_end(self) -> str:
        return UNIX_FINAL_LINE_END if "d" in self.flags else FINAL_LINE_END
