"""Checks what HTTP requests of this process read of the environment: proxies and authorities."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kafka_telemetry_lake.pipelines.doctor.check import Check

AUTHORITIES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


def check_network() -> Iterator[Check]:
    """A line for each variable that names a missing file, and one for proxies. Their URLs may have a password."""
    for name in AUTHORITIES:
        file = os.environ.get(name)
        if file and not Path(file).exists():
            yield Check("network", "failed", f"{name} names {file}, which isn't there", "correct it, or unset it")
    found = [name for each in PROXIES for name in (each, each.lower()) if os.environ.get(name)]
    if found:
        yield Check(
            "network", "ok", f"HTTP requests go through the proxy of {', '.join(found)}; Kafka is asked directly"
        )
