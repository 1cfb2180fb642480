"""Reads YAML that the package brings along. It imports nothing else, so that a command's help stays quick."""

from __future__ import annotations

from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times as fast


def from_yaml(text: str) -> Any:
    """The content of a text. Raises ``yaml.YAMLError`` where it isn't YAML or asks for objects of Python."""
    return yaml.load(text, _LOADER)  # a safe loader
