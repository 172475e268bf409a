"""Moments that are left to chance, the same in each run."""

from __future__ import annotations

import random


def moments(rng: random.Random, count: int, longest: float) -> list[float]:
    """So many of 0 up to ``longest`` seconds, in any order: one in each of as many equal parts.

    Few of them reach the beginning, the middle and the end all the same.
    """
    parts = rng.sample(range(count), count)
    return [longest * (part + rng.random()) / count for part in parts]
