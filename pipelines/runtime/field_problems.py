"""Says what is wrong with a configuration file: a line for each field that its pydantic model refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pydantic import ValidationError


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
