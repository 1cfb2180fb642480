"""Batches of pushes in, judged points, pushes and events out."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.oracle.model import Judged, Push, Settings
from tests.oracle.points import judge_point
from tests.oracle.pushes import Client, PushVerdict, judge_push
from tests.oracle.series import Series, convert


@dataclass
class Batch:
    pushes: list[PushVerdict]

    @property
    def points(self) -> list[Judged]:
        return [judged for verdict in self.pushes for judged in verdict.points]


@dataclass
class Oracle:
    settings: Settings = field(default_factory=Settings)
    clients: dict[object, Client] = field(default_factory=dict)
    series: dict[object, Series] = field(default_factory=dict)

    def batch(self, pushes: list[Push]) -> Batch:
        """Judge a batch; its order in `pushes` is without meaning (D1)."""
        verdicts = [self._judge(push) for push in sorted(pushes, key=sort_key)]
        queue: dict[object, list[tuple[Judged, PushVerdict]]] = {}
        for verdict in verdicts:
            for judged in verdict.accepted:
                if judged.status is None:
                    queue.setdefault((verdict.life, judged.identity), []).append((judged, verdict))
        for identity, points in queue.items():
            points.sort(key=lambda pair: pair[0].point.time_ns)  # C1; stable: ties by push, then by payload order
            series = self.series.get(identity)
            for judged, verdict in points:
                series = convert(series, judged, verdict)
            if series is not None:
                self.series[identity] = series
        return Batch(verdicts)

    def _judge(self, push: Push) -> PushVerdict:
        limit = self.settings.max_points_per_push
        points = [judge_point(push, i, point) for i, point in enumerate(push.points[:limit])]
        if len(push.points) > limit:
            points.append(Judged(push, limit, push.points[limit], {}, reason="TOO_MANY_POINTS"))
        client = self.clients.setdefault(push.client, Client())
        verdict = judge_push(client, push, points, self.settings)
        verdict.left_out = len(push.points) - len(points)
        return verdict


def sort_key(push: Push) -> tuple[object, ...]:
    return (push.source, push.cluster_id or "", push.topic, push.partition, push.offset)
