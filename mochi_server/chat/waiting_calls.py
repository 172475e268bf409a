"""Finds the calls of which results without a complete name are."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable


class WaitingCalls:
    """Calls that wait for their results, by id and name, in their order."""

    def __init__(self, calls: Iterable[tuple[str, str]]) -> None:
        self._left = dict(enumerate(calls))
        self._numbers: defaultdict[tuple[str | None, str | None], deque[int]] = defaultdict(deque)
        """Where calls are: by id, by name, and all; those that were taken are left out late."""
        for number, (call_id, name) in self._left.items():
            for key in ((call_id, None), (None, name), (None, None)):
                self._numbers[key].append(number)

    def take(self, call_id: str | None, name: str | None) -> tuple[str, str] | None:
        """Take the call of this id; without an id the first one of this name, or of any.

        Returns:
            Its id and its name; None if no such call waits.
        """
        numbers = self._numbers[(call_id, None) if call_id is not None else (None, name)]
        while numbers:
            if (call := self._left.pop(numbers.popleft(), None)) is not None:
                return call
        return None
