"""Names the cause of a failure in one line."""

from __future__ import annotations

import re

DISK_FULL = "No space left on device"
DELTA_RS_LINE = re.compile(r"\n\s*(?:\x1b\[31m)?↳(?:\x1b\[0m)?\s*")  # before each cause of an error of delta-rs
UNREADABLE_FILE = re.compile(r"\[FAILED_READ_FILE\.\w+\] .*?reading file (.+?)\.(?:  | SQLSTATE|\s*$)", re.MULTILINE)
DATA_LOSS_ADVICE = (
    "-- Records of the landing topic were deleted before they were read: its retention was shorter than the job's "
    "downtime, or the topic was deleted and recreated. To continue without them, run once with "
    "--no-fail-on-data-loss. A topic that was recreated is read from its beginning with --new-topic (no push is stored "
    "twice)."
)


def cause(text: str) -> str:
    """The cause of a Spark failure, in one line: the last exception with a message, else Spark's own text."""
    text = DELTA_RS_LINE.sub(": ", text)
    before, _, after = text.partition("=== Streaming Query ===")[0].partition("terminated with exception: ")
    message = after or before
    exceptions = re.findall(r"^(?:Caused by: )?[\w.]*(?:Error|Exception)\b.{0,40}?: (?!\s*$).+", message, re.MULTILINE)
    line = " ".join((exceptions[-1] if exceptions else message).split())[:500]
    if DISK_FULL in text and DISK_FULL not in line:  # delta-rs writes it on another line
        line += f": {DISK_FULL}"
    if (file := UNREADABLE_FILE.search(text)) and file[1] not in line:
        line = f"{file[1]} can't be read; put a whole file in its place, or one without rows: {line}"
    if "failOnDataLoss" in text or "some data may have been missed" in text:
        line += f" {DATA_LOSS_ADVICE}"
    return line
