"""TLS: whom connections of this process trust."""

from __future__ import annotations

import truststore


def trust_what_the_machine_trusts() -> None:
    """Verify certificates with the system's store, as pip and Java do.

    requests comes with Mozilla's list, which lacks a company's own authority and that of its proxy. Those that
    ``SSL_CERT_FILE`` and ``REQUESTS_CA_BUNDLE`` name stay trusted. For the whole process, since libraries such as
    apprise make connections of their own.
    """
    truststore.inject_into_ssl()
