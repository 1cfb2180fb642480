"""Explores the interleavings of processes that run real code on a store in memory.

A process is deterministic: what it asks for next depends only on the answers that it got. So its code runs once for
each sequence of answers; these runs make a tree, by which the explorer goes on without running the code again. A state
is the disk and the node of each process. Equal states are explored once.

A process that is never scheduled again has crashed, or is cut off for ever: every state is also that of such an end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.model_store import Disk, Step, answering, carry_out


class Node:
    """Where a process is: after certain answers. It asks for `step` next, or has ended."""

    __slots__ = ("before", "end", "following", "number", "step")
    count = 0

    def __init__(self, before: tuple[Node, Any] | None = None) -> None:
        self.before = before  # the node before, and the answer that led here
        self.step: Step | None = None
        self.end: str | None = None
        self.following: dict[Any, Node] = {}
        Node.count += 1
        self.number = Node.count

    def after(self, answer: Any) -> Node:
        node = self.following.get(answer)
        if node is None:
            node = self.following[answer] = Node((self, answer))
        return node


class Process:
    """A process: its code, and the tree of its runs."""

    def __init__(self, name: str, code: Callable[[], str]) -> None:
        self.name, self._code = name, code
        self.start = Node()
        self.runs = 0

    def known(self, node: Node, disk: Disk) -> Node:
        """The node, with what the process asks for next. At its first visit the code runs on from there, alone."""
        if node.step is None and node.end is None:
            self.run_on(node, disk)
        return node

    def run_on(self, node: Node, disk: Disk) -> tuple[Disk, str]:
        """Run the code to its end, from a node and a disk; returns the disk and how it ended."""
        self.runs += 1
        recorded, at = [], node
        while at.before is not None:
            at, answer = at.before
            recorded.append(answer)
        position = self.start

        def answer_to(step: Step) -> Any:
            nonlocal position, disk
            assert position.step in (None, step), f"{self.name} isn't deterministic: {position.step}, now {step}"
            position.step = step
            if recorded:
                answer = recorded.pop()
            else:
                answer, disk = carry_out(disk, step)
            position = position.after(answer)
            return answer

        with answering(self.name, answer_to):
            end = self._code()
        position.end = end
        return disk, end


def run_alone(name: str, code: Callable[[], str], disk: Disk) -> tuple[Disk, str]:
    """Run a process from its beginning to its end; returns the disk and how it ended."""

    def answer_to(step: Step) -> Any:
        nonlocal disk
        answer, disk = carry_out(disk, step)
        return answer

    with answering(name, answer_to):
        end = code()
    return disk, end


@dataclass
class Found:
    """A violated invariant, and the steps that led to it."""

    problem: str
    trace: list[str]

    def __str__(self) -> str:
        return "\n".join([self.problem, *self.trace])


@dataclass
class Explored:
    """What an exploration has done.

    Attributes:
        states: distinct ones.
        disks: distinct ones.
        runs: of the code of processes.
        ends: how processes ended, with the number of states.
        whole: whether nothing was left out within the bound.
    """

    states: int = 0
    transitions: int = 0
    disks: int = 0
    runs: int = 0
    longest: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    found: Found | None = None
    whole: bool = True


State = tuple[Disk, tuple[Node, ...]]
# Judges a disk after a step; may raise AssertionError.
Check = Callable[[Disk, tuple[Node, ...], Sequence["Process"]], None]


def explore(
    processes: Sequence[Process], disk: Disk, check: Check, is_invisible: Callable[[str, Step, Disk], bool],
    preemptions: int | None = None, most_states: int = 10**9,
) -> Explored:  # fmt: skip
    """Visit every state that interleavings lead to.

    Args:
        check: called at each state, and for each disk that an invisible step leaves.
        is_invisible: whether a step of a process can't be told from outside when it is taken: no other process reads
            or writes what it does. Such a step is taken at once.
        preemptions: the most switches away from a process that could go on; None: any number.
    """
    result = Explored()
    least: dict[tuple[Any, ...], int] = {}
    disks: set[int] = set()
    first = (disk, tuple(process.known(process.start, disk) for process in processes))
    stack: list[tuple[State, int | None, int, Any]] = [(first, None, 0, None)]
    states: set[tuple[Any, ...]] = set()
    while stack:
        (disk, nodes), last, switches, trail = stack.pop()
        key = (disk.key, *(node.number for node in nodes))
        if preemptions is not None:
            bounded = (*key, last)
            if least.get(bounded, 1 << 30) <= switches:
                continue
            least[bounded] = switches
        elif key in states:
            continue
        if key not in states:
            states.add(key)
            disks.add(disk.key)
            if len(states) > most_states:
                result.whole = False
                break
            try:
                check(disk, nodes, processes)
            except AssertionError as error:
                result.found = Found(str(error), _steps(trail))
                break
        if all(node.step is None for node in nodes):
            for number, node in enumerate(nodes):
                end = f"{processes[number].name}: {node.end}"
                result.ends[end] = result.ends.get(end, 0) + 1
        for number, node in enumerate(nodes):
            if node.step is None:
                continue
            cost = switches + int(last is not None and last != number and nodes[last].step is not None)
            if preemptions is not None and cost > preemptions:
                continue
            result.transitions += 1
            try:
                following, after, way = _take(processes, number, nodes, disk, is_invisible, check, trail)
            except Violation as error:
                result.found = error.found
                stack.clear()
                break
            stack.append(((after, (*nodes[:number], following, *nodes[number + 1 :])), number, cost, way))
    result.states, result.disks, result.runs = len(states), len(disks), sum(process.runs for process in processes)
    return result


class Violation(Exception):
    """An invariant doesn't hold between two steps that the explorer takes at once."""

    def __init__(self, found: Found) -> None:
        super().__init__(found.problem)
        self.found = found


def _take(
    processes: Sequence[Process], number: int, nodes: tuple[Node, ...], disk: Disk,
    is_invisible: Callable[[str, Step, Disk], bool], check: Check, trail: Any,
) -> tuple[Node, Disk, Any]:  # fmt: skip
    """A step, and the invisible ones after it."""
    process, node = processes[number], nodes[number]
    while True:
        assert node.step is not None
        answer, disk = carry_out(disk, node.step)
        trail = (trail, process.name, node.step, answer)
        node = process.known(node.after(answer), disk)
        if node.step is None or not is_invisible(process.name, node.step, disk):
            return node, disk, trail
        try:
            check(disk, (*nodes[:number], node, *nodes[number + 1 :]), processes)
        except AssertionError as error:
            raise Violation(Found(str(error), _steps(trail))) from error


def _steps(trail: Any) -> list[str]:
    lines = []
    while trail is not None:
        trail, name, step, answer = trail
        lines.append(f"{name}: {_short(step)} -> {_short((answer,))}")
    return lines[::-1]


def _short(values: Iterable[Any]) -> str:
    return " ".join(str(value)[:160] for value in values)
