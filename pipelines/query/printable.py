"""Makes untrusted text from clients safe to print: no escape sequences, direction changes or line breaks."""

from __future__ import annotations

import json
from typing import Any


def printable(text: str, keep: str = "") -> str:
    r"""Escape characters that aren't printable, such as ``\x1b``, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)


def printable_json(value: Any, **options: Any) -> str:
    r"""Convert a value to JSON, with characters that aren't printable as ``\u`` escapes."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
