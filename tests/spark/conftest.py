"""What tests of the job share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.s3_server import S3Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server with an empty bucket."""
    server = S3Server.start(tmp_path_factory.mktemp("s3") / "objects")
    yield server
    server.stop()
