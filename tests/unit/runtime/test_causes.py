"""The one line that is left of a Spark failure."""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.runtime.causes import cause

# As Spark 4.0.5 words it for a Parquet file with a damaged page.
DAMAGED_PAGE = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in%20[1]/bad.x.parquet.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:856)
Caused by: java.io.IOException: can not read class org.apache.parquet.format.PageHeader
\t... 67 more
Caused by: shaded.parquet.org.apache.thrift.protocol.TProtocolException: Required field 'uncompressed_page_size' was not found
\t... 67 more
"""  # noqa: E501  # lines of Spark


def test_a_file_that_cannot_be_read_is_named_once() -> None:
    assert cause(DAMAGED_PAGE) == (
        "file:///in%20[1]/bad.x.parquet can't be read; put a whole file in its place, or one without rows: Caused by: "
        "shaded.parquet.org.apache.thrift.protocol.TProtocolException: Required field 'uncompressed_page_size' was not "
        "found"
    )
    text = (
        DAMAGED_PAGE + "Caused by: java.lang.RuntimeException: file:///in%20[1]/bad.x.parquet is not a Parquet file\n"
    )
    assert cause(text).endswith("RuntimeException: file:///in%20[1]/bad.x.parquet is not a Parquet file")
    assert cause(text).count("bad.x.parquet") == 1
