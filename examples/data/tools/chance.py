"""Chance: dice, a choice, an order."""

from __future__ import annotations

import random

_CHANCE = random.SystemRandom()


def roll_dice(count: int = 1, sides: int = 6) -> str:
    """Roll dice; the numbers and their sum.

    Args:
        count: How many dice, from 1 to 100.
        sides: How many sides each of them has, from 2 to 1000.
    """
    if not 1 <= count <= 100 or not 2 <= sides <= 1000:
        raise ValueError("Roll 1 to 100 dice of 2 to 1000 sides.")
    rolled = [_CHANCE.randint(1, sides) for _ in range(count)]
    if count == 1:
        return str(rolled[0])
    return f"{', '.join(map(str, rolled))} (sum {sum(rolled)})"


def choose(options: list[str], count: int = 1) -> str:
    """Choose among options by chance, each equally likely and none twice.

    Args:
        options: What to choose from.
        count: How many to choose.
    """
    if not 1 <= count <= len(options):
        raise ValueError(f"Choose from 1 to {len(options)} of {len(options)} options.")
    return "\n".join(_CHANCE.sample(options, count))


def shuffle(items: list[str]) -> str:
    """Put items into an order by chance, one on each line.

    Args:
        items: What to put into an order.
    """
    if not items:
        raise ValueError("Put at least one item into an order, from a list of texts.")
    return "\n".join(_CHANCE.sample(items, len(items)))
