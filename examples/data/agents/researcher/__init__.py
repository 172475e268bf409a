"""What the researcher can do."""

from __future__ import annotations

from .researcher import list_documents, read_document, save_note, search_documents

__all__ = ["list_documents", "read_document", "save_note", "search_documents"]

# With the policy confirm_destructive a person is asked about this one, and not about the others.
__destructive__ = ["save_note"]

# Runs alone: two notes at a time could get the same name.
__sequential__ = ["save_note"]

# Seconds; the others have MOCHI_TOOL_TIMEOUT_SECONDS.
__timeouts__ = {"search_documents": 20}
