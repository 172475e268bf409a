"""What the processes of a server share: rows, lines, and a version that says what has changed.

``Statements`` is what can be done within a transaction, and ``State`` has the transactions. Those
of SQLite are in a file, or in memory; Django's face has those of PostgreSQL. ``Signals`` wake who
waits for a change.
"""

from .base import State
from .signals import Signals, StateSignals, Subscription
from .sqlite import Conversion, SQLiteState
from .statements import Statements, StateRow, Version

__all__ = [
    "Conversion",
    "SQLiteState",
    "Signals",
    "State",
    "StateRow",
    "StateSignals",
    "Statements",
    "Subscription",
    "Version",
]
