"""What a person may say about a finding, and what is valid in it. Each ``ValueError`` is one line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

ACKNOWLEDGED, MUTED, UNMUTED = "acknowledged", "muted", "unmuted"
REMARKS = (ACKNOWLEDGED, MUTED, UNMUTED)
MOST_CHARACTERS = 1000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def remark_text(text: str) -> str:
    """The text of who made a remark, or why, without spaces around it. Raises ``ValueError``: it has a wrong length."""
    text = text.strip()
    if not 1 <= len(text) <= MOST_CHARACTERS:
        raise ValueError(f"allowed: 1 to {MOST_CHARACTERS:,} characters; these are {len(text):,}")
    return text


def end_of_mute(text: str) -> int:
    """When a mute ends, µs; a time without a zone is UTC."""
    try:
        given = datetime.fromisoformat(text.strip())
        utc = given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError("allowed: a time such as 2026-11-30T08:00Z; without a zone it is UTC") from error
    return (utc - EPOCH) // timedelta(microseconds=1)


def time_text(at: datetime | int) -> str:
    """A time, or µs, as people read it."""
    time = EPOCH + timedelta(microseconds=at) if isinstance(at, int) else at
    return f"{time:%Y-%m-%d %H:%M} UTC"
