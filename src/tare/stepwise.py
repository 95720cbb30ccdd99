"""What is entered step by step, and left by undoing the steps, the last first."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self


class Stepwise:
    """A context manager made of others: a step that fails undoes those before it."""

    def _build(self, stack: ExitStack) -> None:
        """Take every step, and leave on the stack what undoes it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Take every step; it raises what a step raises."""
        with ExitStack() as stack:
            self._build(stack)
            self._steps = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._steps.close()
