"""``token add|list|revoke``."""

from __future__ import annotations

import json
from pathlib import Path

from mochi_server.core.tokens import AccessTokenFile
from tests.support.server import environment, run_command


async def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    ended = await run_command("token", *arguments, cwd=folder, env=environment(data_dir=folder))
    return ended.code, ended.out, ended.err


async def test_a_token_is_made_listed_and_revoked(tmp_path: Path) -> None:
    code, out, err = await run(
        tmp_path, "add", "alice", "--rights", "tools,chat", "--expires", "90d"
    )
    token = out.strip()
    assert (code, token[:6]) == (0, "mochi_"), err
    assert "shown this once" in err
    assert "demands a token" in err
    file = AccessTokenFile(tmp_path / "tokens.json", tmp_path / ".mochi" / "tokens")
    found = file.find([token.encode()])
    assert found is not None
    assert found.rights == ("chat", "tools")

    code, out, _ = await run(tmp_path, "list", "--json")
    (listed,) = json.loads(out)["tokens"]
    assert (listed["name"], listed["rights"]) == ("alice", ["chat", "tools"])
    assert listed["last_used_at"] is not None
    assert listed["expires_at"] > listed["created_at"]
    assert found.sha256 not in out
    code, out, _ = await run(tmp_path, "list")
    assert "alice  chat,tools" in out

    code, out, err = await run(tmp_path, "revoke", "alice")
    assert (code, out) == (0, "Revoked alice.\n")
    assert "None is left, and one is still demanded" in err
    assert file.find([token.encode()]) is None
    audit = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(each["who"], each["action"]) for each in audit] == [
        ("command", "add token"),
        ("command", "revoke token"),
    ]
    assert token not in (tmp_path / "audit.jsonl").read_text()


async def test_what_is_not_possible_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / ".mochi").mkdir()
    code, _, err = await run(tmp_path, "revoke", "bob")
    assert (code, err) == (1, "CommandError: There is no token 'bob'.\n")
    code, _, err = await run(tmp_path, "add", "token", "--rights", "chat")
    assert code == 1
    assert "CommandError: 'token' is what the server itself is called in logs." in err
    code, _, err = await run(tmp_path, "add", "bob", "--rights", "root")
    assert "'root' is no right; the rights are read, chat, tools, admin" in err
    assert code == 2
    (tmp_path / "tokens.json").write_text("{")
    code, _, err = await run(tmp_path, "list")
    assert code == 1
    assert "tokens.json cannot be used: it is not JSON" in err
