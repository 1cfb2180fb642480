"""Names of tables in a catalog of Spark. Needs no Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,254}")


def is_name(text: str) -> bool:
    """Whether a catalog or schema of a lake may be called so. Dots, quotes and spaces are for SQL."""
    return NAME.fullmatch(text) is not None


@dataclass(frozen=True)
class Names:
    """A catalog and schema, whose tables are those of a lake."""

    catalog: str
    schema: str

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}"

    @property
    def quoted(self) -> str:
        """The schema, as SQL names it."""
        return f"`{self.catalog}`.`{self.schema}`"

    def of(self, table: str) -> str:
        """A table or view, as SQL names it."""
        return f"{self.quoted}.`{table}`"
