"""A sub-folder, whose group is called by its own name."""

from .._words import say
from .case import shout

__all__ = ["shout", "spell"]


def spell(word: str) -> str:
    """Spell a word.

    :param word: What to spell.
    """
    return say(len(word)) + " " + "-".join(word)
