"""What an OTLP/HTTP endpoint says that it took.

https://opentelemetry.io/docs/specs/otlp/#otlphttp-response: status 200, the content type of the request, and a message
that may name rejected rows. Many endpoints leave the message out, some write it as JSON. Another answer is not that of
an endpoint, whatever its status: nothing was taken.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from kafka_telemetry_lake.pipelines.notify.http import Answer, SinkDownError

AnswerT = TypeVar("AnswerT", bound=Message)
PROTOBUF = ("application/x-protobuf", "application/protobuf")
JSON = "application/json"


def acknowledgement(answer: Answer, kind: type[AnswerT]) -> AnswerT:
    """The message of an answer; an empty one if it has none.

    Raises:
        SinkDownError: it isn't the answer of an OTLP endpoint.
    """
    is_json = answer.content_type == JSON or (not answer.content_type and answer.body.lstrip().startswith(b"{"))
    what = f"HTTP {answer.status} with content type {answer.content_type[:80] or '(none)'}"
    if not (is_json or answer.content_type in ("", *PROTOBUF)):
        raise SinkDownError(f"it answers {what}, not as an OTLP endpoint does")
    try:
        if not answer.body:
            return kind()
        return json_format.Parse(answer.body, kind()) if is_json else kind.FromString(answer.body)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError):
        raise SinkDownError(f"it answers {what}, but no message of OTLP") from None
