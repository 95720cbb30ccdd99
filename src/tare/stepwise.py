"""What is entered step by step, and left by undoing the steps, the last first."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self


class Stepwise:
    """A context manager made of others: a step that fails undoes those before it.

    They see what is raised, and may say more of it; none swallows it.
    """

    def _build(self, stack: ExitStack) -> None:
        """Take every step, and leave on the stack what undoes it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Take every step; it raises what a step raises."""
        with ExitStack() as stack:
            self._build(stack)
            self._steps = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._steps.__exit__(kind, error, trace)
