"""``token add|list|revoke``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

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


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["revoke", "bob"], r"^There is no token 'bob'\.$"),
        (["add", "token", "--rights", "chat"], "^'token' is what the server itself is called in"),
        (["add", "bob", "--rights", "root"], "'root' is no right; .* read, chat, tools, admin"),
    ],
)
def test_what_is_not_possible_is_said_in_a_line(
    mochi: Any, arguments: list[str], reason: str
) -> None:
    mochi.state_path.mkdir(parents=True)
    with pytest.raises(CommandError, match=reason) as failed:
        call_command("token", *arguments)
    assert failed.value.returncode == 1


def test_a_file_of_tokens_that_is_none_is_named(mochi: Any) -> None:
    mochi.state_path.mkdir(parents=True)
    (mochi.data_dir / "tokens.json").write_text("{")
    with pytest.raises(CommandError, match=r"tokens\.json cannot be used: it is not JSON"):
        call_command("token", "list")
