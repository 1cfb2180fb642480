"""Which landing records are no pushes, and why: what the contract decides before a value is read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.landing.contract import INSTANCE_ID, VERSION, ZERO_UUID

INVALID_REQUEST, INVALID_RECORD = "INVALID_REQUEST", "INVALID_RECORD"
MAX_QUOTED = 100  # characters of untrusted text quoted in a reject detail


def rejects(
    header: pa.Array, key: pa.Array, version: pa.Array, content_type: pa.Array, has_value: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """Reason and detail of each record; both are NULL for a push.

    Args:
        header: the client instance id in the record's header.
        key: the record's key as text.
        version: header `record_version`.
        content_type: header `content_type`.
        has_value: whether the record has a value, or says why it has none.
    """
    instance_id = pc.coalesce(header, key)
    problems = (  # the first one counts
        (instance_id.is_null(), INVALID_REQUEST, "no client instance id in header or key", ()),
        (
            pc.not_equal(header, key), INVALID_REQUEST,
            "client instance id differs: header {}, key {}", (header, key),
        ),
        (pc.equal(instance_id, ZERO_UUID), INVALID_REQUEST, "the client instance id is the zero UUID", ()),
        (
            pc.invert(pc.match_substring_regex(instance_id, INSTANCE_ID)), INVALID_REQUEST,
            "not a client instance id of 22 base64 characters: {}", (instance_id,),
        ),
        (pc.not_equal(version, VERSION), INVALID_RECORD, "landing record of unknown version {}", (version,)),
        (_is_other(content_type), INVALID_RECORD, "content type {}", (content_type,)),
        (pc.invert(has_value), INVALID_RECORD, "null value", ()),
    )  # fmt: skip
    found: dict[int, tuple[str, str]] = {}
    for is_one, reason, detail, quoted in problems:
        for record in pc.indices_nonzero(is_one.fill_null(False)).to_pylist():
            texts = (f"'{column[record].as_py()[:MAX_QUOTED]}'" for column in quoted)
            found.setdefault(record, (reason, detail.format(*texts)))
    rows = [found.get(record, (None, None)) for record in range(len(key))] if found else []
    if not rows:
        return pa.nulls(len(key), pa.string()), pa.nulls(len(key), pa.string())
    reasons, details = zip(*rows, strict=True)
    return pa.array(reasons, pa.string()), pa.array(details, pa.string())


def _is_other(content_type: pa.Array) -> pa.Array:
    """Whether this is another form than OTLP metrics; nearly all texts are "OTLP"."""
    plain = pc.utf8_lower(pc.replace_substring_regex(content_type, r"[\s\v]", ""))
    is_metrics = pc.starts_with(plain, "application/x-protobuf;type=otlp+metrics")
    return pc.invert(pc.or_(pc.equal(plain, "otlp"), is_metrics))
