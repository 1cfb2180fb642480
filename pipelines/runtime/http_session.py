"""The one kind of HTTP session that the product makes."""

from __future__ import annotations

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from requests.utils import get_auth_from_url
from urllib3.util import Retry

from kafka_telemetry_lake.pipelines.runtime.ambient import explicit_settings_win
from kafka_telemetry_lake.pipelines.runtime.trust import trust_what_the_machine_trusts


def http_session(retries: Retry | int = 0, at_once: int = 1) -> requests.Session:
    """A session with the certificates that the machine trusts and the environment's proxies (`ambient`).

    A request's Authorization header is sent as it is set; without one, the user and password of its URL.

    Args:
        retries: of a request.
        at_once: requests at the same time.
    """
    explicit_settings_win()
    trust_what_the_machine_trusts()
    session = requests.Session()
    session.auth = _as_set
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=at_once, max_retries=retries))
    return session


def _as_set(request: requests.PreparedRequest) -> requests.PreparedRequest:
    user, password = get_auth_from_url(request.url or "")
    if (user or password) and "Authorization" not in request.headers:
        return HTTPBasicAuth(user, password)(request)
    return request
