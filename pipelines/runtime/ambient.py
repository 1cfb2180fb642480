"""What HTTP libraries read of the environment on their own, and which of it may change what is set explicitly.

On purpose a company's proxy (``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY``, ``NO_PROXY``) and authorities
(``SSL_CERT_FILE``, ``REQUESTS_CA_BUNDLE``; `trust`). Not ``.netrc``: requests replaces an Authorization header, or the
user of a URL, by its entry for the host. And no proxy for this machine and for the store of ``AWS_ENDPOINT_URL``: of
the three libraries that write a lake only delta-rs would ask it.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "127.0.0.0/8", "::1")  # not every library reads ranges


def explicit_settings_win() -> None:
    """Set the variables so, for this process and those that it starts. Repeated calls change nothing more."""
    os.environ["NETRC"] = os.devnull
    stores = (os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
    without_proxy = [*LOOPBACK, *filter(None, map(_host, stores))]
    # Libraries differ in which of the two they prefer.
    given = [entry.strip() for name in ("no_proxy", "NO_PROXY") for entry in os.environ.get(name, "").split(",")]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = (
        "*" if "*" in given else ",".join(dict.fromkeys(filter(None, [*given, *without_proxy])))
    )


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # what uses it says what is wrong
        return ""
