"""How personal data, principals and addresses, is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

import pyarrow as pa


@dataclass(frozen=True)
class Privacy:
    """How `principal` and `client_address` are stored: ``keep``, ``hash`` (keyed, 32 hex digits) or ``drop``.

    Without the key nobody can find an address by hashing all of them. The same key gives the same hashes, so queries
    can still group and join by them.
    """

    how: Literal["keep", "hash", "drop"] = "keep"
    key: str = field(default="", repr=False)

    def stored(self, texts: pa.Array) -> pa.Array:
        """What is stored for a column of texts."""
        if self.how == "keep":
            return texts
        known = texts.dictionary_encode()
        stored = pa.array([self.of(text) for text in known.dictionary.to_pylist()], pa.string())
        return pa.DictionaryArray.from_arrays(known.indices, stored).dictionary_decode()

    def of(self, text: str) -> str | None:
        """What is stored for a text."""
        if self.how == "keep":
            return text
        return sha256(f"{self.key}\0{text}".encode()).hexdigest()[:32] if self.how == "hash" else None


UNCHANGED = Privacy()
