"""Moves the package of classes in a jar, as a shading tool does, by rewriting the texts of each class's constant pool.

Shape of a class file: The Java Virtual Machine Specification, 4.1 and 4.4.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

UTF8, LONG, DOUBLE = 1, 5, 6
# Bytes of a constant after its tag, by tag. A text has its own length; a package (20) is in no jar of Kafka's.
BYTES = {3: 4, 4: 4, LONG: 8, DOUBLE: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2}


def move_package(jar: Path, into: Path, package: str, prefix: str) -> None:
    """Write `jar` into `into`, with `package` (such as ``org.apache.kafka``) below `prefix` (such as ``shaded``)."""
    dotted, slashed = (package + ".").encode(), (package.replace(".", "/") + "/").encode()
    names = ((dotted, prefix.encode() + b"." + dotted), (slashed, prefix.encode() + b"/" + slashed))
    with zipfile.ZipFile(jar) as source, zipfile.ZipFile(into, "w") as target:
        for entry in source.namelist():
            content = source.read(entry)
            if entry.endswith(".class"):
                content = b"".join(_renamed(content, names))
            elif entry.startswith("META-INF/services/"):
                content = _replaced(content, names)
            target.writestr(_replaced(entry.encode(), names).decode(), content)


def _renamed(content: bytes, names: tuple[tuple[bytes, bytes], ...]) -> Iterator[bytes]:
    """A class file, in pieces, with other texts."""
    (constants,) = struct.unpack_from(">H", content, 8)
    yield content[:10]
    at, number = 10, 1
    while number < constants:
        tag = content[at]
        if tag == UTF8:
            (size,) = struct.unpack_from(">H", content, at + 1)
            text = _replaced(content[at + 3 : at + 3 + size], names)
            yield struct.pack(">BH", UTF8, len(text)) + text
            at += 3 + size
        else:
            yield content[at : at + 1 + BYTES[tag]]
            at += 1 + BYTES[tag]
        number += 2 if tag in (LONG, DOUBLE) else 1  # these take two places
    yield content[at:]


def _replaced(text: bytes, names: tuple[tuple[bytes, bytes], ...]) -> bytes:
    for old, new in names:
        text = text.replace(old, new)
    return text
