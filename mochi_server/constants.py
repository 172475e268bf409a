"""Values that several parts share, with their units."""

from typing import Final

FORMAT_VERSION: Final = "1.3"
"""The version of the session file that we write (docs/reference/session-file.md)."""

PREVIEW_CHARACTERS: Final = 100
"""Characters of a session's preview at most, with the "..." of a cut one. The preview of a system
prompt has its "..." behind so many."""

LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of this machine."""

SYSTEM_PROMPT_CHARACTERS: Final = 10_000
"""A system prompt must be shorter than this, wherever it comes from."""

CHARACTERS_PER_TOKEN: Final = 4.0
"""First estimate, before a model's own counts have calibrated it."""

DURATION: Final = r"^-?([0-9]+|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+)$"
"""A pattern: whole seconds, or a duration in the notation of Go."""

SUMMARY_UNSUPPORTED_MODELS: Final = frozenset({"gpt-oss", "gpt-oss-safeguard"})
"""Models that cannot be trusted with structured output, whatever their tag: a grammar for their
reply breaks their own thinking format."""
