"""Loaded once, by the process that the jobs of `forked_job` are forks of: code and kernels cost six CPU-s."""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.ingest import operator_task
from tests.support import stopped_job

__all__ = ["stopped_job"]
operator_task._compile()
