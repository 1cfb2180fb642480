"""The SQL of a panel as text for `telemetry-lake query`: nothing is left out, so it gives the panel's rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from kafka_telemetry_lake.dashboards.lake import Parameter
from kafka_telemetry_lake.dashboards.questions import CHOSEN, CHOSEN_IDS, Grain, question
from kafka_telemetry_lake.dashboards.selection import FILTERS, OWNED, Selection

_PARAMETER = re.compile(r"\$(\w+)")
_WITH = re.compile(r"^\s*WITH\s+", re.IGNORECASE)


def of_question(name: str, grain: Grain, values: Mapping[str, Parameter], selection: Selection) -> str:
    """The statement of a question about the selected clients."""
    of = question(name, grain, everybody=not selection.filters)
    text = filled(of.pretty, values)
    if of.reads.isdisjoint({CHOSEN, CHOSEN_IDS}):
        return text
    chosen = f"WITH {CHOSEN} AS (\n{_chosen(values, selection)}\n)"
    return f"{chosen},\n{_WITH.sub('', text)}" if _WITH.match(text) else f"{chosen}\n{text}"


def filled(sql: str, values: Mapping[str, Parameter]) -> str:
    """A statement with its parameters' values in place of them."""
    return _PARAMETER.sub(lambda match: literal(values[match[1]]) if match[1] in values else match[0], sql)


def literal(value: Parameter) -> str:
    """A value as SQL."""
    if isinstance(value, datetime):
        return f"TIMESTAMPTZ '{value.isoformat(sep=' ')}'"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    return str(value) if isinstance(value, int) else "'{}'".format(value.replace("'", "''"))


def _chosen(values: Mapping[str, Parameter], selection: Selection) -> str:
    """The client instances that pass the filters, as `open_scene` finds them."""
    software = "concat(coalesce(client_software_name, 'unknown'), ' ', coalesce(client_software_version, 'unknown'))"
    select = f"SELECT *, {software} AS software\nFROM (\n{filled(question('instances').pretty, values)}\n)"
    conditions = []
    for key, column in FILTERS.items():
        if chosen := selection.chosen(key):
            condition = f"{column} IN ({', '.join(map(literal, chosen))})"
            if key in OWNED:
                condition = f"client_instance_id IN (SELECT client_instance_id FROM clients WHERE {condition})"
            conditions.append(condition)
    return "\n".join([select, *([f"WHERE {' AND '.join(conditions)}"] if conditions else [])])
