"""Explores the interleavings of processes that run real code on a store in memory.

A process is deterministic: what it asks for next depends only on the answers that it got. So its code runs once for
each sequence of answers; these runs make a tree, by which the explorer goes on without running the code again. A state
is the disk and the node of each process. Equal states are explored once.

A process that is never scheduled again has crashed, or is cut off for ever: every state is also that of such an end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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


KILLED = Node()
KILLED.end = "killed"


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
class Explored:
    """What an exploration has done.

    Attributes:
        states: distinct ones.
        disks: distinct ones.
        runs: of the code of processes.
        ends: how processes ended, with the number of final states.
        found: a violated invariant, and the steps that led to it; None: all hold.
    """

    states: int = 0
    transitions: int = 0
    disks: int = 0
    runs: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    found: str | None = None


class ViolationError(Exception):
    """An invariant doesn't hold; the message has the steps that led there."""


@dataclass(frozen=True)
class State:
    """A state, and how it was reached.

    Attributes:
        last: the process that took the last step.
        switches: away from processes that could go on.
        trail: the steps, the last one first, as nested tuples.
    """

    disk: Disk
    nodes: tuple[Node, ...]
    last: int | None = None
    switches: int = 0
    trail: Any = None

    @property
    def key(self) -> tuple[int, ...]:
        return (self.disk.key, *(node.number for node in self.nodes))


# Judges the disk of a state; raises AssertionError.
Check = Callable[[Disk, tuple[Node, ...], Sequence[Process]], None]


class Explorer:
    """Visits every state that interleavings lead to.

    Args:
        check: called at each state, and for each disk that an invisible step leaves.
        is_invisible: whether no other process can tell when the process of this name takes this step on this disk: it
            reads what stays, or changes what no other process looks at. Such a step is taken at once.
        preemptions: the most switches away from a process that could go on; None: any number.
        killed: the disk after a process of this name was killed; None: as it was.
    """

    def __init__(
        self, processes: Sequence[Process], check: Check, is_invisible: Callable[[str, Step, Disk], bool],
        preemptions: int | None = None, killed: Callable[[str, Disk], Disk] | None = None,
    ) -> None:  # fmt: skip
        self._processes, self._check, self._is_invisible = processes, check, is_invisible
        self._most, self._killed = preemptions, killed
        self._seen: dict[tuple[int | None, ...], int] = {}  # states, with the least switches by which they were reached
        self._disks: set[int] = set()
        self._states: set[tuple[int, ...]] = set()

    def explore(self, disk: Disk) -> Explored:
        """Visit the states that follow a disk, until an invariant doesn't hold."""
        explored = Explored()
        waiting = [State(disk, tuple(process.known(process.start, disk) for process in self._processes))]
        try:
            while waiting:
                state = waiting.pop()
                if self._is_known(state):
                    continue
                if state.key not in self._states:
                    self._states.add(state.key)
                    self._judge(state)
                    if all(node.step is None for node in state.nodes):
                        explored.ends.update(
                            f"{process.name}: {node.end}"
                            for process, node in zip(self._processes, state.nodes, strict=True)
                        )
                following = [self._after(state, number) for number in self._runnable(state)]
                following += self._kills(state)
                explored.transitions += len(following)
                waiting += following
        except (ViolationError, AssertionError) as error:  # the latter of `is_invisible`
            explored.found = str(error)
        explored.states, explored.disks = len(self._states), len(self._disks)
        explored.runs = sum(process.runs for process in self._processes)
        return explored

    def _is_known(self, state: State) -> bool:
        key = state.key if self._most is None else (*state.key, state.last)
        if self._seen.get(key, 1 << 30) <= state.switches:
            return True
        self._seen[key] = 0 if self._most is None else state.switches
        return False

    def _runnable(self, state: State) -> Iterator[int]:
        for number, node in enumerate(state.nodes):
            if node.step is not None and (self._most is None or self._switches(state, number) <= self._most):
                yield number

    def _kills(self, state: State) -> Iterator[State]:
        """The states after a process was killed. If that frees nothing, it is as if the process never went on."""
        for number, (process, node) in enumerate(zip(self._processes, state.nodes, strict=True)):
            if self._killed is not None and node.step is not None:
                disk = self._killed(process.name, state.disk)
                if disk.key != state.disk.key:
                    nodes = (*state.nodes[:number], KILLED, *state.nodes[number + 1 :])
                    trail = (state.trail, process.name, ("killed",), None)
                    yield State(disk, nodes, state.last, state.switches, trail)

    def _switches(self, state: State, number: int) -> int:
        return state.switches + int(state.last not in (None, number) and state.nodes[state.last or 0].step is not None)

    def _after(self, state: State, number: int) -> State:
        """The state after a step of a process, and the invisible ones that follow."""
        process, switches = self._processes[number], self._switches(state, number)
        while True:
            node = state.nodes[number]
            assert node.step is not None
            answer, disk = carry_out(state.disk, node.step)
            following = process.known(node.after(answer), disk)
            nodes = (*state.nodes[:number], following, *state.nodes[number + 1 :])
            state = State(disk, nodes, number, switches, (state.trail, process.name, node.step, answer))
            if following.step is None or not self._is_invisible(process.name, following.step, disk):
                return state
            self._judge(state)

    def _judge(self, state: State) -> None:
        self._disks.add(state.disk.key)
        try:
            self._check(state.disk, state.nodes, self._processes)
        except AssertionError as error:
            raise ViolationError("\n".join([str(error), *_steps(state.trail)])) from error


def _steps(trail: Any) -> list[str]:
    lines = []
    while trail is not None:
        trail, name, step, answer = trail
        lines.append(f"{name}: {_short(step)} -> {_short((answer,))}")
    return lines[::-1]


def _short(values: Iterable[Any]) -> str:
    return " ".join(str(value)[:160] for value in values)
