"""Rules that say which application a client belongs to, for the clients that no alias names.

A rule compares a client's id, principal, consumer group and address. It's read from the list `rules` of the aliases'
YAML file. View `clients` applies it.
"""

from __future__ import annotations

import ipaddress
import re
import warnings
from typing import Annotated, Any

import duckdb
from pydantic import BaseModel, ConfigDict, Field, model_validator

Text = Annotated[str, Field(min_length=1)]
PATTERNS = ("client_id", "principal", "group_id")
CONDITIONS = (*PATTERNS, "address_range")
# Java's expressions, which Spark uses, read these otherwise than RE2's, which DuckDB uses.
ONLY_SOME = re.compile(r"\(\?P|\{,")


class Rule(BaseModel):
    """Conditions of which all must hold, and what they say about the client."""

    model_config = ConfigDict(extra="forbid", strict=True)

    client_id: Text | None = None
    principal: Text | None = None
    group_id: Text | None = None
    address_range: Text | None = None
    application: Text
    owner: Text | None = None
    environment: Text | None = None

    @model_validator(mode="after")
    def _can_be_applied(self) -> Rule:
        given = {name: text for name in CONDITIONS if (text := getattr(self, name)) is not None}
        if not given:
            raise ValueError(f"needed: at least one of {', '.join(CONDITIONS)}")
        for name in given.keys() & set(PATTERNS):
            if problem := problem_of_pattern(given[name]):
                raise ValueError(f"{name} is no regular expression that every engine reads alike: {problem}")
        if self.address_range is not None:
            try:
                ipaddress.ip_network(self.address_range)
            except ValueError as error:
                raise ValueError(f"address_range is no address range such as 10.1.0.0/16: {error}") from None
        return self

    def row(self, position: int) -> dict[str, Any]:
        """Keys and values of table `application_rules`."""
        first = last = None
        if self.address_range is not None:
            network = ipaddress.ip_network(self.address_range)
            first, last = comparable(network[0]), comparable(network[-1])
        return {"position": position, **self.model_dump(), "address_first": first, "address_last": last}


def comparable(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """An address as a text that sorts as addresses do: view `clients` makes the same of a client's address.

    IPv4: its numbers with three digits each. IPv6: its 32 hex digits.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return "".join(f"{number:03}" for number in address.packed)
    return address.packed.hex()


def problem_of_pattern(pattern: str) -> str | None:
    """Why DuckDB and Spark wouldn't both take a regular expression, or read it differently; None: they would."""
    if found := ONLY_SOME.search(pattern):
        return f"{found[0]!r} means something else, or nothing, in Java"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of sets in sets, which Java reads otherwise
            re.compile(pattern)
        duckdb.execute("SELECT regexp_matches('', ?)", [pattern]).fetchall()
    except (re.error, duckdb.Error, Warning) as error:
        return " ".join(str(error).split())
    return None
