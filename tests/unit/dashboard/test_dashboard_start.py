"""What Streamlit reads of the environment when the dashboard starts."""

from __future__ import annotations

import pytest

from kafka_telemetry_lake.jobs.dashboard import serve
from kafka_telemetry_lake.jobs.settings.base import UsageError


def test_a_wrong_variable_of_streamlit_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMLIT_SERVER_MAX_UPLOAD_SIZE", "abc")
    with pytest.raises(UsageError) as error:
        serve(["--server.port=1"])
    assert str(error.value) == (
        "Streamlit's options: Invalid value for '--server.maxUploadSize' "
        "(env var: 'STREAMLIT_SERVER_MAX_UPLOAD_SIZE'): 'abc' is not a valid integer."
    )
