"""Finding sessions by what was said in them (docs/explanation/search.md)."""

from .database import SearchFile, has_full_text
from .indexing import Indexing
from .query import Query, parse
from .service import INDEX, PAGE, SearchResult, SessionSearch

__all__ = [
    "INDEX",
    "PAGE",
    "Indexing",
    "Query",
    "SearchFile",
    "SearchResult",
    "SessionSearch",
    "has_full_text",
    "parse",
]
