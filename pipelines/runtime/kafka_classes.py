"""Kafka's client classes in a JVM, under the package name that they have there.

Databricks' runtime has moved Kafka's clients, Spark's Kafka source included, from `org.apache.kafka` to
`kafkashaded.org.apache.kafka`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from py4j.java_gateway import JavaClass

MOVED = "kafkashaded."
# Not in a name that has another package before it, such as one that is moved already.
_CLASS_NAME = re.compile(r"(?<![\w.])(?=org\.apache\.kafka\.)")


def kafka_package(jvm: Any) -> Any:
    """The package `org.apache.kafka`, moved or not, of a JVM seen through py4j."""
    return jvm.kafkashaded.org.apache.kafka if _is_moved(jvm) else jvm.org.apache.kafka


def for_jvm(jvm: Any, options: Mapping[str, str]) -> dict[str, str]:
    """Options of a Kafka client or of Spark's Kafka source, with the names that Kafka's classes have in this JVM.

    The same `sasl.jaas.config` works on every platform: it names a login module by its class.
    """
    if not _is_moved(jvm):
        return dict(options)
    return {key: _CLASS_NAME.sub(MOVED, value) for key, value in options.items()}


def _is_moved(jvm: Any) -> bool:
    # Where both are, Spark's Kafka source uses the moved ones. Of a class that isn't there py4j makes a package.
    return isinstance(jvm.kafkashaded.org.apache.kafka.clients.admin.Admin, JavaClass)
