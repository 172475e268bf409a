"""What a docstring says: Google, NumPy and Sphinx style."""

from __future__ import annotations

from dataclasses import dataclass, field

import docstring_parser


@dataclass(frozen=True, slots=True)
class Docstring:
    """The parts that matter to a model."""

    text: str
    """Summary and explanation, without the sections on parameters, results and errors."""
    parameters: dict[str, str] = field(default_factory=dict)


def read_docstring(doc: str) -> Docstring:
    """Take a docstring apart; one that no style fits is text as a whole."""
    try:
        parsed = docstring_parser.parse(doc)
    except (docstring_parser.ParseError, LookupError, ValueError, AttributeError):
        return Docstring(doc.strip())
    parts = [parsed.short_description, parsed.long_description]
    found = {each.arg_name: " ".join((each.description or "").split()) for each in parsed.params}
    return Docstring(
        "\n\n".join(part.strip() for part in parts if part) or doc.strip(),
        {name.lstrip("*"): text for name, text in found.items() if text},
    )
