"""Says what is wrong with a configuration file: that it isn't YAML, or a line for each field that its model refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from kafka_telemetry_lake.udfs.errors import CannotRunError


def read_yaml(path: Path, error: type[CannotRunError], parse: Callable[[str], Any] = yaml.safe_load) -> Any:
    """The content of a file.

    Raises:
        error: it can't be read, or isn't YAML; the message is one line with the path.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(f"{path}: {problem.strerror}") from None
    # ValueError: not UTF-8, a day that no month has, a number of thousands of digits.
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise error(f"{path}: not YAML: {' '.join(str(problem).split())}") from None


def field_problems(
    error: ValidationError,
    whole: str = "the file",
    needed: str = "needed",
    allowed: Callable[[tuple[int | str, ...]], Iterable[str]] = lambda _: (),
) -> list[str]:
    """A line for each problem: the field's path, what is wrong, and the value.

    Args:
        whole: what to call the path of the content itself.
        needed: what to say of a field that is missing.
        allowed: returns the fields that may stand where an unknown one does, by its path.
    """
    lines = []
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"]) or whole
        match item["type"]:
            case "missing":
                problem = needed
            case "extra_forbidden":
                names = ", ".join(allowed(item["loc"]))
                problem = f"no such field, allowed: {names}" if names else "no such field"
            case "value_error":
                problem = str(item["ctx"]["error"])
            case _:
                problem = f"{item['msg']}, got {item['input']!r}"
        lines.append(f"{field}: {problem}")
    return lines
