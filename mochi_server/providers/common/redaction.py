"""Keys, and the secrets of addresses, kept out of what people are shown."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import SplitResult, quote, unquote

from .values import plain_text

REDACTED: Final = "…"
SHORT_SECRET: Final = 6
"""Characters; a shorter secret is redacted only as a whole word. A key ``x``, which servers of
one's own take, would make nonsense of every text, also of the words by which errors are known."""


def redaction(key: str | None, address: SplitResult | None) -> Callable[[str], str]:
    """Return a function that makes a text plain and replaces a provider's secrets in it.

    Those are the key, the password of the address (its user, where it has no password), both
    together as they are sent, and the values of its parameters, but for short ones, such as
    versions. The longest is replaced first: one may be a part of another.
    """
    secrets = {key or "", *(() if address is None else _secrets_of(address))} - {""}
    short = [rf"(?<!\w){re.escape(one)}(?!\w)" for one in secrets if len(one) < SHORT_SECRET]
    long = sorted((one for one in secrets if len(one) >= SHORT_SECRET), key=len, reverse=True)
    pattern = re.compile("|".join([*map(re.escape, long), *short]) or r"(?!)")
    return lambda text: pattern.sub(REDACTED, plain_text(text))


def _secrets_of(address: SplitResult) -> Iterator[str]:
    name, password = address.username or "", address.password or ""
    yield from _spellings(password or name)
    if name or password:
        login = f"{unquote(name)}:{unquote(password)}"
        yield b64encode(login.encode()).decode().rstrip("=")
    for parameter in address.query.split("&"):
        key, _, value = parameter.partition("=")
        if len(value or key) >= SHORT_SECRET:
            yield from _spellings(value or key)


def _spellings(secret: str) -> Iterator[str]:
    plain = unquote(secret)
    yield from (secret, plain, quote(plain), quote(plain, safe=""))
