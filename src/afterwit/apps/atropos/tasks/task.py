"""A coding task: what is asked, and the tests that decide, which the agent never sees."""

from __future__ import annotations

from dataclasses import dataclass

SOLUTION = "solution.py"
"""The file that is examined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One coding task."""

    name: str
    prompt: str
    """With the examples that the agent may see."""
    tests: tuple[str, ...]
    """Python statements or programs that raise if the solution is wrong; see `exam/examiner.py`."""
    setup: str = ""
    """Python that runs before each test."""
    entry_point: str | None = None
    """The function that tests in HumanEval's form are called with."""

    def __post_init__(self) -> None:
        if not self.prompt.strip():
            raise ValueError(f"task {self.name} has no prompt")
        if not self.tests or not all(test.strip() for test in self.tests):
            raise ValueError(f"task {self.name} has no tests, or an empty one")


@dataclass(frozen=True, slots=True, kw_only=True)
class TestVerdict:
    """What came of a task's own tests."""

    __test__ = False  # pytest takes the name for one of its own

    passed: int
    total: int
    failure: str | None
    """The first failing call and what it gave, without what was expected; None if all pass."""

    @property
    def correctness(self) -> float:
        """The share of tests that pass."""
        return self.passed / self.total

    @property
    def text(self) -> str:
        """The verdict in words."""
        said = f"{self.passed} of {self.total} hidden tests pass."
        return said if self.failure is None else f"{said} First failure: {self.failure}"
