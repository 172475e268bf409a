"""What nobody is shown, also where a service repeats it: keys, and the secrets of addresses."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import SplitResult, quote, unquote

from .tool_calls import plain_text

HIDDEN: Final = "…"
FEW_LETTERS: Final = 6
"""A secret of fewer is hidden only where it stands alone: a key ``x``, which servers of one's own
take, would make nonsense of every text, and a prompt that is too long is known by its words."""


def hiding(key: str | None, address: SplitResult | None) -> Callable[[str], str]:
    """What makes texts plain, in whole characters and without the secrets of a provider.

    Those are the key, the password of the address (its user, where it has no password), both
    together as they are sent, and the values of its parameters, but for short ones, such as
    versions. The longest goes first: one may be a part of another.
    """
    found = {key or "", *(() if address is None else _of_address(address))} - {""}
    alone = [rf"(?<!\w){re.escape(one)}(?!\w)" for one in found if len(one) < FEW_LETTERS]
    longest = sorted((one for one in found if len(one) >= FEW_LETTERS), key=len, reverse=True)
    pattern = re.compile("|".join([*map(re.escape, longest), *alone]) or r"(?!)")
    return lambda words: pattern.sub(HIDDEN, plain_text(words))


def _of_address(address: SplitResult) -> Iterator[str]:
    """The secrets of an address, in every way that they are written."""
    name, password = address.username or "", address.password or ""
    yield from _written(password or name)
    if name or password:
        login = f"{unquote(name)}:{unquote(password)}"
        yield b64encode(login.encode()).decode().rstrip("=")
    for parameter in address.query.split("&"):
        key, _, value = parameter.partition("=")
        if len(value or key) >= FEW_LETTERS:
            yield from _written(value or key)


def _written(secret: str) -> Iterator[str]:
    plain = unquote(secret)
    yield from (secret, plain, quote(plain), quote(plain, safe=""))
