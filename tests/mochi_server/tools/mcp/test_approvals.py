"""Which descriptions of MCP tools a person has approved."""

from __future__ import annotations

from pathlib import Path

from mochi_server.tools.mcp.approvals import ApprovedTools
from tests.support.disk import wait_for_tick


async def test_what_was_approved_counts_again_when_its_folder_is_back(tmp_path: Path) -> None:
    path = tmp_path / "data" / "approved_tools.json"
    approved = ApprovedTools(path)
    await approved.add("files", {"read": "1"})
    wait_for_tick(path)
    await approved.refresh()
    assert approved.approval_of("files", "read", "1") == "approved"
    path.parent.rename(tmp_path / "away")
    path.parent.touch()
    await approved.refresh()
    assert approved.approval_of("files", "read", "1") == "changed"
    path.parent.unlink()
    (tmp_path / "away").rename(path.parent)
    await approved.refresh()
    assert approved.approval_of("files", "read", "1") == "approved"
