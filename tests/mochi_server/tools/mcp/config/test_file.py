"""The file of MCP servers: what it may look like, and how it is changed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mochi_server.errors import (
    McpConfigUnavailable,
    McpServerExists,
    McpServerInvalid,
    McpServerNotFound,
)
from mochi_server.tools.mcp.config.entry import McpOptions, McpServerConfig, McpServerUnusable
from mochi_server.tools.mcp.config.file import MAX_SERVERS, McpConfig, McpConfigFile
from mochi_server.tools.mcp.redaction import secrets_of
from mochi_server.tools.mcp.secret_values import SecretValues
from tests.support.disk import no_more_files

CLAUDE = {
    "mcpServers": {
        "filesystem": {
            "command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me"],
            "env": {"DEBUG": "1"},
        }
    },
    "globalShortcut": "",
}
CURSOR = {
    "mcpServers": {
        "remote": {"url": "https://example.org/mcp", "headers": {"Authorization": "${env:TOKEN}"}}
    }
}
VS_CODE = """\
{
  // Asked for when the server starts.
  "inputs": [
    {"type": "promptString", "id": "perplexity-key", "description": "Key", "password": true},
    {"type": "pickString", "id": "region", "options": ["eu", "us"], "default": "eu"},
  ],
  "servers": {
    "io.github/perplexity": {
      "type": "stdio",
      "command": "docker",
      "args": ["run", "-i", "${input:region}"],
      "env": {"KEY": "${input:perplexity-key}", "PORT": 8000, "NOTHING": null},
    },
    "fetch": {"type": "http", "url": "http://localhost:3000/mcp"},
    "old": {"type": "sse", "url": "http://localhost:3000/sse"},
  },
}
"""


def write(folder: Path, content: Any, name: str = "mcp.json") -> McpConfigFile:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8")
    return McpConfigFile(folder / "mcp.json")


async def read(folder: Path, content: Any) -> McpConfig:
    return await write(folder, content).read()


def server(**fields: Any) -> McpServerConfig:
    return McpServerConfig.model_validate({"name": "a", **fields})


async def test_the_file_of_claude_desktop_is_read_as_it_is(tmp_path: Path) -> None:
    config = await read(tmp_path, CLAUDE)
    assert config.problems == ()
    assert config.servers["filesystem"] == McpServerConfig(
        name="filesystem",
        command="npx",
        args=["-y", "@modelcontextprotocol/server-filesystem", "/home/me"],
        env={"DEBUG": "1"},
        folder=tmp_path,
    )
    assert config.servers["filesystem"].transport == "stdio"


async def test_the_file_of_cursor_is_read_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = (await read(tmp_path, CURSOR)).servers["remote"]
    assert (config.transport, config.type) == ("http", None)
    monkeypatch.setenv("TOKEN", "Bearer secret")
    assert config.expanded().headers == {"Authorization": "Bearer secret"}
    assert config.headers == {"Authorization": "${env:TOKEN}"}


async def test_the_file_of_vs_code_is_read_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = await read(tmp_path, VS_CODE)
    assert config.problems == ()
    assert [(each.name, each.transport) for each in config.servers.values()] == [
        ("io_github_perplexity", "stdio"),
        ("fetch", "http"),
        ("old", "sse"),
    ]
    perplexity = config.servers["io_github_perplexity"]
    with pytest.raises(McpServerUnusable, match="needs the input 'perplexity-key': set the var"):
        perplexity.expanded()
    monkeypatch.setenv("MCP_INPUT_PERPLEXITY_KEY", "secret")
    expanded = perplexity.expanded()
    assert expanded.env == {"KEY": "secret", "PORT": "8000"}
    assert expanded.args == ["run", "-i", "eu"]


async def test_names_that_are_none_for_tools_become_ones(tmp_path: Path) -> None:
    entry = {"command": "x"}
    names = {"My Server": entry, "a__b": entry, "1st": entry}
    config = await read(tmp_path, {"mcpServers": names})
    assert {name: each.prefix for name, each in config.servers.items()} == {
        "My_Server": "My_Server",
        "a_b": "a_b",
        "1st": "_1st",
    }


async def test_the_other_file_is_read_where_there_is_no_mcp_json(tmp_path: Path) -> None:
    entry = {"transport": "sse", "url": "http://localhost/sse"}
    file = write(tmp_path, {"mcpServers": {"a": entry}}, "mcp-config.json")
    assert (await file.read()).servers["a"].transport == "sse"
    await file.add("b", {"command": "x"})
    assert not (tmp_path / "mcp.json").exists()
    write(tmp_path, CLAUDE)
    config = await file.read()
    assert set(config.servers) == {"filesystem"}
    (problem,) = config.problems
    assert problem.file == str(tmp_path / "mcp-config.json")
    assert problem.reason == "Not read, as there is mcp.json."


BROKEN: list[tuple[Any, str]] = [
    ("npx", "it is no object"),
    ({}, "a server of the type 'stdio' needs 'command'"),
    ({"command": ""}, "needs 'command'"),
    ({"type": "http", "command": "x"}, "needs 'url'"),
    ({"command": "x", "url": "http://a/"}, "it has a 'command' and a 'url'"),
    ({"command": 1}, "command: Input should be a valid string"),
    ({"command": "x", "args": "-y"}, "args: Input should be a valid list"),
    ({"command": "x", "env": {"A": ["sk-secret"]}}, "env.A: Input should be a valid string"),
    ({"command": "x", "env": {"A=B": "secret"}}, "characters that none can have"),
    ({"command": "x", "args": ["a\0b"]}, "characters that none can have"),
    ({"command": "x" * 40_000}, "at most 32768 characters"),
    ({"command": "x", "args": ["a"] * 501}, "at most 500 items"),
    ({"type": "carrier pigeon", "command": "x"}, "type: Input should be 'stdio', 'http' or 'sse'"),
    ({"url": "file:///etc/passwd"}, "'url' must be an address"),
    ({"url": "http://"}, "'url' must be an address"),
    ({"url": "http://a:b/"}, "'url' must be an address"),
    ({"url": "http://a/\nX: y"}, "'url' must be an address"),
    ({"url": "http://a/", "headers": {"A": "secret\nX: y"}}, "the header 'A' has characters"),
    ({"url": "http://a/", "headers": {"A B": "secret"}}, "the header 'A B' has characters"),
    ({"command": "x", "mochi": {"trustd": True}}, "mochi.trustd: Extra inputs are not permitted"),
    ({"command": "x", "mochi": {"prefix": "a__b"}}, "mochi.prefix: a prefix has at most 40"),
    ({"command": "x", "mochi": {"prefix": "1"}}, "mochi.prefix: a prefix has at most 40"),
    ({"command": "x", "mochi": {"timeout_seconds": 0}}, "mochi.timeout_seconds: Input should be"),
    ({"command": "x", "mochi": {"scope": "galaxy"}}, "mochi.scope: Input should be 'shared' or"),
]


@pytest.mark.parametrize(("entry", "reason"), BROKEN, ids=[reason for _, reason in BROKEN])
async def test_a_broken_entry_is_named_and_hides_no_other(
    entry: Any, reason: str, tmp_path: Path
) -> None:
    servers = {"before": {"command": "x"}, "bad": entry, "after": {"command": "x"}}
    config = await read(tmp_path, json.dumps({"mcpServers": servers}, indent=1))
    assert list(config.servers) == ["before", "after"]
    assert config.broken == {"bad"}
    (problem,) = config.problems
    assert problem.reason.startswith("The server 'bad' cannot be used: ")
    assert reason in problem.reason
    assert "secret" not in problem.reason
    assert problem.line == 6


@pytest.mark.parametrize("name", ["", "___", "é", "a" * 41, "servers", "add"])
async def test_a_name_that_cannot_be_used_is_a_problem(name: str, tmp_path: Path) -> None:
    config = await read(tmp_path, {"mcpServers": {name: {"command": "x"}, "b": {"command": "x"}}})
    assert list(config.servers) == ["b"]
    assert len(config.problems) == 1
    with pytest.raises(McpServerInvalid):
        await McpConfigFile(tmp_path / "mcp.json").add(name, {"command": "x"})


async def test_two_servers_of_one_name_are_a_problem(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a b": {"command": "x"}, "a_b": {"command": "y"}, "c": {"url": "http://c"}}}'
    config = await read(tmp_path, text)
    assert list(config.servers) == ["c"]
    assert "two servers have this name" in config.problems[0].reason
    file = McpConfigFile(tmp_path / "mcp.json")
    with pytest.raises(McpServerInvalid, match="several times"):
        await file.change("a_b", {"command": "z"})
    await file.remove("a_b")
    assert (await file.read()).problems == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Cannot be read: Expecting property name"),
        ("[]", "Cannot be read: it is no object"),
        ('{"mcpServers": []}', "Cannot be read: 'mcpServers' is no object"),
        ('{"servers": {"a": "\\ud800"}}', "Cannot be read: it is not UTF-8 text"),
        ('{"servers": ' + "[" * 100_000, "Cannot be read: it is nested too deeply"),
        (" " * 1_000_001, "Cannot be read: it has more than 1,000,000 bytes"),
    ],
    ids=["cut", "array", "section", "surrogate", "deep", "long"],
)
async def test_a_file_that_is_none_is_one_problem_and_not_overwritten(
    text: str, reason: str, tmp_path: Path
) -> None:
    file = write(tmp_path, text)
    config = await file.read()
    assert config.is_unreadable
    assert config.problems[0].reason.startswith(reason)
    if "\\u" not in text:
        with pytest.raises(McpConfigUnavailable):
            await file.add("a", {"command": "x"})
    assert (tmp_path / "mcp.json").read_text() == text


async def test_what_is_no_plain_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").symlink_to("/etc/passwd")
    assert (await McpConfigFile(tmp_path / "mcp.json").read()).is_unreadable
    (tmp_path / "mcp.json").unlink()
    os.mkfifo(tmp_path / "mcp.json")
    assert (await McpConfigFile(tmp_path / "mcp.json").read()).is_unreadable


async def test_the_file_is_read_after_a_moment_without_free_files(tmp_path: Path) -> None:
    file = write(tmp_path, CLAUDE)
    with no_more_files(file.path):
        assert (await file.read()).is_unreadable
    assert list((await file.read()).servers) == ["filesystem"]


async def test_too_many_servers_are_a_problem(tmp_path: Path) -> None:
    servers = {f"s{i}": {"command": "x"} for i in range(MAX_SERVERS + 1)}
    file = write(tmp_path, {"mcpServers": servers})
    config = await file.read()
    assert len(config.servers) == MAX_SERVERS
    assert config.problems[-1].reason == "Only the first 200 of 201 servers are used."
    with pytest.raises(McpServerInvalid, match="200 servers already"):
        await file.add("one", {"command": "x"})


async def test_changes_of_the_file_are_noticed(tmp_path: Path) -> None:
    file = McpConfigFile(tmp_path / "mcp.json")
    assert await file.read() == McpConfig()
    for number in range(20):  # within one tick of the clock of the file system, and of one size
        write(tmp_path, {"mcpServers": {f"s{number:02}": {"command": "x"}}})
        assert list((await file.read()).servers) == [f"s{number:02}"]
    (tmp_path / "mcp.json").unlink()
    assert (await file.read()).servers == {}


async def test_a_file_that_did_not_change_is_not_read_again(tmp_path: Path) -> None:
    file = write(tmp_path, CLAUDE)
    os.utime(tmp_path / "mcp.json")
    first = await file.read()
    while (again := await file.read()) is not first:  # until the clock of the file system ticks
        first = again


async def test_a_server_is_added_changed_and_removed_and_the_rest_stays(tmp_path: Path) -> None:
    file = write(tmp_path, VS_CODE)
    (tmp_path / "mcp.json").chmod(0o640)
    added = await file.add("new", {"command": "x", "autoApprove": ["all"], "env": {"A": "1"}})
    assert added.name == "new"
    with pytest.raises(McpServerExists):
        await file.add("new", {"command": "y"})
    changed = await file.change("new", {"command": None, "env": None, "url": "http://a/"})
    assert changed.transport == "http"
    entry = json.loads((tmp_path / "mcp.json").read_text().split('"new": ')[1].split("},")[0] + "}")
    assert entry == {"autoApprove": ["all"], "url": "http://a/"}
    await file.change("io_github_perplexity", {"disabled": True})
    assert (await file.read()).servers["io_github_perplexity"].disabled
    await file.change("io_github_perplexity", {"disabled": None})
    await file.remove("new")
    text = (tmp_path / "mcp.json").read_text()
    assert "// Asked for when the server starts." in text
    assert "NOTHING" in text
    assert (tmp_path / "mcp.json").stat().st_mode & 0o777 == 0o640
    for missing in (file.remove("new"), file.change("new", {})):
        with pytest.raises(McpServerNotFound):
            await missing


async def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = McpConfigFile(tmp_path / "data" / "mcp.json")
    await file.add("a", {"command": "x"})
    assert (tmp_path / "data" / "mcp.json").stat().st_mode & 0o777 == 0o600
    text = (tmp_path / "data" / "mcp.json").read_text()
    assert json.loads(text) == {"mcpServers": {"a": {"command": "x"}}}


async def test_what_is_invalid_is_not_written(tmp_path: Path) -> None:
    file = write(tmp_path, CLAUDE)
    before = (tmp_path / "mcp.json").read_bytes()
    for entry, _ in BROKEN:
        with pytest.raises(McpServerInvalid):
            await file.add("a", entry)
    with pytest.raises(McpServerInvalid):
        await file.change("filesystem", {"command": None})
    with pytest.raises(McpServerInvalid):
        await file.add("a b", {"command": "x"})
    assert (tmp_path / "mcp.json").read_bytes() == before


async def test_a_broken_entry_can_be_corrected_or_removed(tmp_path: Path) -> None:
    file = write(tmp_path, {"mcpServers": {"a": 1, "b": {"command": 1}}})
    await file.change("a", {"command": "x"})
    await file.remove("b")
    config = await file.read()
    assert list(config.servers) == ["a"]
    assert config.problems == ()


ADDS = """
import asyncio, sys
from pathlib import Path
from mochi_server.tools.mcp.config.file import McpConfigFile

async def main(number):
    file = McpConfigFile(Path("mcp.json"))
    await asyncio.gather(*(file.add(f"s{number}-{i}", {"command": "x"}) for i in range(10)))

asyncio.run(main(sys.argv[1]))
"""


async def test_processes_that_add_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", ADDS, str(number)] for number in range(3)]
    processes = [
        await asyncio.create_subprocess_exec(*command, cwd=tmp_path) for command in commands
    ]
    assert [await process.wait() for process in processes] == [0, 0, 0]
    config = await McpConfigFile(tmp_path / "mcp.json").read()
    assert len(config.servers) == 30


def test_variables_are_filled_in_everywhere_and_only_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONE", "1")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("UNSET", raising=False)
    config = server(
        command="${ONE}/x",
        args=["a${ONE}b", "${UNSET:-two}", "${EMPTY:-three}", "${EMPTY}", "$ONE", "${ONE", "${#a}"],
        env={"A": "${env:ONE}", "B": "${workspaceFolder}"},
        cwd="${ONE}",
        folder=tmp_path,
    )
    expanded = config.expanded()
    assert expanded.command == "1/x"
    assert expanded.args == ["a1b", "two", "three", "", "$ONE", "${ONE", "${#a}"]
    assert expanded.env == {"A": "1", "B": str(tmp_path)}
    assert expanded.cwd == tmp_path / "1"


def test_what_has_no_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSET", raising=False)
    text = "needs the variable UNSET, which is not set and the variable OTHER, which is not set"
    with pytest.raises(McpServerUnusable, match=text):
        server(url="http://a/${UNSET}", headers={"A": "${UNSET}${OTHER}"}).expanded()


def test_a_value_of_a_variable_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "file:///etc/passwd")
    with pytest.raises(McpServerUnusable, match="'url' must be an address"):
        server(url="${WHERE}").expanded()
    monkeypatch.setenv("SECRET", "sk-secret\nX: y")
    with pytest.raises(McpServerUnusable, match="the header 'A' has characters that") as failed:
        server(url="http://a/", headers={"A": "${SECRET}"}).expanded()
    assert "secret" not in str(failed.value)


def test_a_file_of_variables_is_read(tmp_path: Path) -> None:
    (tmp_path / "my.env").write_text('A=1\nB="two words"\nC=${A}\n')
    config = server(command="x", envFile="${workspaceFolder}/my.env", env={"A": "2"})
    config = config.model_copy(update={"folder": tmp_path})
    assert config.expanded().env == {"A": "2", "B": "two words", "C": "${A}"}
    with pytest.raises(McpServerUnusable, match=r"none\.env', which cannot be read \(No such file"):
        server(command="x", envFile="none.env", folder=tmp_path).expanded()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("bin/npx", "bin/npx-evil", "evil/npx"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (tmp_path / "evil/link").symlink_to(tmp_path / "bin/npx")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


@pytest.mark.parametrize("command", ["npx", "bin/npx", "./bin/../bin/npx", "${BIN:-bin}/npx"])
@pytest.mark.parametrize("allowed", ["npx", "bin/npx", "{}/bin/npx"])
def test_an_allowed_command_becomes_its_full_path(
    command: str, allowed: str, programs: Path
) -> None:
    config = server(command=command, env={"PATH": str(programs / "evil")}, folder=programs)
    path = str(programs / "bin/npx")
    assert config.expanded([allowed.format(programs)]).command == path


@pytest.mark.parametrize(
    "command", ["npx-evil", "evil/npx", "{}/evil/npx", "npx -y", "np", "evil/link", "bin/", ""]
)
def test_other_commands_are_refused(command: str, programs: Path) -> None:
    config = server(command="x", folder=programs)
    config = config.model_copy(update={"command": command.format(programs)})
    with pytest.raises(McpServerUnusable, match="is not one of MOCHI_MCP_ALLOWED_COMMANDS"):
        config.expanded(["npx", "uvx"])
    assert config.expanded().command == command.format(programs)


async def test_a_command_that_is_not_allowed_is_not_added(programs: Path) -> None:
    file = McpConfigFile(programs / "mcp.json", allowed_commands=["npx"])
    await file.add("a", {"command": "npx"})
    await file.add("b", {"url": "http://a/"})
    with pytest.raises(McpServerInvalid, match="MOCHI_MCP_ALLOWED_COMMANDS"):
        await file.add("c", {"command": "npx-evil"})
    with pytest.raises(McpServerInvalid, match="MOCHI_MCP_ALLOWED_COMMANDS"):
        await file.change("b", {"url": None, "command": "sh"})


def test_patterns_choose_tools() -> None:
    options = McpOptions.model_validate({"tools": {"allow": ["read_*"], "deny": ["*_secret"]}})
    assert options.tools.allows("read_file")
    assert not options.tools.allows("write_file")
    assert not options.tools.allows("read_secret")
    assert McpOptions().tools.allows("anything")


def test_a_prefix_leaves_the_border_of_the_name_clear() -> None:
    with pytest.raises(ValueError, match="no '_' at its end"):
        McpOptions.model_validate({"prefix": "a_"})


SECRETS: dict[str, Any] = {
    "command": "npx",
    "args": [
        *("-y", "@modelcontextprotocol/server-everything", "--api-key", "secret1"),
        *("--token=secret2", "--header", "Authorization: Bearer secret3", "--port", "3000"),
        *("postgresql://me:secret4@db/x?password=secret5", "sk-secret6aaaaaaaaaaaa"),
        *("--key", "${KEY}", "/home/me/a folder", "KEY=a1b2c3d4e5f6secret7a1b2c3"),
    ],
    "env": {"A": "secret8", "B": "${B}", "C": "${C:-secret9}"},
    "mochi": {"trusted": True},
}


def test_what_is_shown_has_no_secrets() -> None:
    config = server(**SECRETS)
    shown = config.shown()
    assert shown == {
        "command": "npx",
        "args": [
            *("-y", "@modelcontextprotocol/server-everything", "--api-key", "…"),
            *("--token=…", "--header", "…", "--port", "3000"),
            *("postgresql://…@db/x?password=…", "…"),
            *("--key", "${KEY}", "/home/me/a folder", "KEY=…"),
        ],
        "env": {"A": "…", "B": "${B}", "C": "…"},
        "mochi": {"trusted": True},
    }
    assert "secret" not in repr(config)
    remote = server(
        url="https://me:secret@a/s/a1b2c3d4e5f6secret7a1b2c3/mcp?key=secret&b",
        headers={"Authorization": "Bearer secret", "X-Key": "Bearer ${KEY}"},
    )
    assert remote.shown() == {
        "url": "https://…@a/s/…/mcp?key=…&b",
        "headers": {"Authorization": "…", "X-Key": "Bearer ${KEY}"},
    }
    assert "secret" not in repr(remote)


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        *[("-pSECRET", "-p…"), ("-phunter2", "-p…"), ("-p=Hunter2", "-p=…"), ("-Ps3cret!", "-P…")],
        *[("-aTopSecret", "-a…"), ("-wS3cret", "-w…")],
        ("mysql -uroot -pS3cret db", "mysql -uroot -p… db"),
        ("mysql '-pS3cret' db", "mysql '-p…' db"),
        # Of well-known programs also alone, and in small letters
        ("mysql -p secret db; mkdir -p a/dir", "mysql -p … db; mkdir -p a/dir"),
        ("/usr/bin/mysqldump -psecret | tar -p x", "/usr/bin/mysqldump -p… | tar -p x"),
        ("sshpass -p secret ssh -p 2222 host", "sshpass -p … ssh -p 2222 host"),
        (
            "docker login -u me -p secret && docker run -p 80",
            "docker login -u … -p … && docker run -p 80",
        ),
        ("cd a && redis-cli -h db -a secret -p 6379", "cd a && redis-cli -h db -a … -p 6379"),
        ("curl -u user:secret http://a; mongosh -p 1234", "curl -u … http://a; mongosh -p …"),
        ("ldapsearch -x -w secret -b 'dc=a'", "ldapsearch -x -w … -b 'dc=a'"),
        ("7z x '-psecret' a.7z", "7z x '-p…' a.7z"),
        ('bash -c "mysql -psecret db"', 'bash -c "mysql -p… db"'),
        *[(same, same) for same in ("mkdir -p dir", "cp -phunter a", "psql -p 5432 -a")],
        ("tool '--token' 'S3cret' \"--key=S3 cret\" '-v'", "tool '--token' … \"--key=…\" '-v'"),
        # Ports, paths, variables and options of more letters
        *[(same, same) for same in ("-p8080:80", "-p=8080", "-p127.0.0.1:80:80", "-p80/tcp")],
        *[(same, same) for same in ("-port", "-project", "-allow-write", "-w/work", "-p${PW}")],
    ],
)
def test_a_password_behind_the_letter_of_its_option_is_not_shown(argument: str, shown: str) -> None:
    config = server(command="sh", args=["-c", argument])
    assert config.shown()["args"] == ["-c", shown]


def test_a_password_of_the_program_that_is_started_is_not_shown() -> None:
    config = server(command="/opt/mysql", args=["-p", "secret", "db"])
    assert config.shown()["args"] == ["-p", "…", "db"]


def test_a_secret_in_quotes_is_taken_out_of_texts_without_them() -> None:
    secrets = SecretValues()
    secrets.add(secrets_of({"args": ["-c", "tool --token 'hunter22' -p\"S3 cret\""]}))
    assert secrets.redacted("Refused: hunter22, S3 cret") == "Refused: …, …"


async def test_what_is_shown_can_be_sent_back_as_a_change(tmp_path: Path) -> None:
    file = write(tmp_path, {"mcpServers": {"a": SECRETS}})
    shown = (await file.read()).servers["a"].shown()
    shown["env"] = {**shown["env"], "A": "…", "D": "new"}  # type: ignore[dict-item]
    await file.change("a", {**shown, "args": [*shown["args"], "more"]})  # type: ignore[misc]
    stored = json.loads((tmp_path / "mcp.json").read_text())["mcpServers"]["a"]
    assert stored == {
        **SECRETS,
        "args": [*SECRETS["args"], "more"],
        "env": {**SECRETS["env"], "D": "new"},
    }
    with pytest.raises(McpServerInvalid, match="not known what '…' stands for"):
        await file.change("a", {"env": {"NEW": "…"}})
    with pytest.raises(McpServerInvalid, match="not known what '…' stands for"):
        await file.change("a", {"args": ["…"]})


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (
            ["-e", "NAME=hunter2", "-eB=hunter2", "-e", "HOME"],
            ["-e", "NAME=…", "-eB=…", "-e", "HOME"],
        ),
        (["--env", "A=hunter2", "--env=B=hunter2"], ["--env", "A=…", "--env=B=…"]),
        (["-H", "X-Key: hunter2", "-HX-Key: hunter2"], ["-H", "…", "-H…"]),
        (
            ["--header=X: hunter2", "Authorization: Bearer hunter2"],
            ["--header=…", "Authorization: …"],
        ),
        (["--token", "hunter2", "--api-key=hunter2"], ["--token", "…", "--api-key=…"]),
        (["--auth", "--token", "-hunter2", "-v"], ["--auth", "--token", "…", "-v"]),
        (["-u", "me:hunter2", "--user=me:hunter2"], ["-u", "…", "--user=…"]),
        (["API_KEY=hunter2", "MODE=fast"], ["API_KEY=…", "MODE=fast"]),
        (["-c", "TOKEN=hunter2 npx x --key hunter2"], ["-c", "TOKEN=… npx x --key …"]),
        (["--config", '{"apiKey": "hunter2"}'], ["--config", "…"]),
        (["https://me:hunter2@a/b?api_key=hunter2"], ["https://…@a/b?api_key=…"]),
        (["--url=https://a/b?api_key=hunter2"], ["--url=https://a/b?api_key=…"]),
        (["--passphrase", "hunter2", "--pass=hunter2"], ["--passphrase", "…", "--pass=…"]),
        (["--dsn", "hunter2", "--webhook=hunter2"], ["--dsn", "…", "--webhook=…"]),
        (["--connection-string", "hunter2"], ["--connection-string", "…"]),
        (["--db=Server=h;User=u;Pwd=hunter2"], ["--db=Server=h;User=u;Pwd=…"]),
        (["jdbc:x://h/db?user=u&password=hunter2"], ["jdbc:x://h/db?user=u&password=…"]),
        (["/token:hunter2", "db.password: hunter2"], ["/token:…", "db.password: …"]),
        (["me:hunter2@a", "x:me:hunter2@a/b"], ["…@a", "…@a/b"]),
        (["-x", "me:hunter2@1.2.3.4:80", "-U", "me:hunter2"], ["-x", "…@1.2.3.4:80", "-U", "…"]),
        (["Authorization=Bearer hunter2"], ["Authorization=…"]),
        (["-c", "curl -H 'X: a hunter2' b"], ["-c", "curl -H … b"]),
        (["-c", "x 'Authorization: Bearer hunter2'"], ["-c", "x 'Authorization: …'"]),
        (["a:1@sha256:ab", "npm:a@1.2", "@a/b@2"], ["a:1@sha256:ab", "npm:a@1.2", "@a/b@2"]),
        (["--endpoint", "x", "-y", "--port=80"], ["--endpoint", "x", "-y", "--port=80"]),
    ],
)
def test_secrets_among_arguments_are_not_shown(arguments: list[str], shown: list[str]) -> None:
    assert server(command="x", args=arguments).shown()["args"] == shown


@pytest.mark.parametrize(
    ("arguments", "sent", "stored"),
    [
        (["--a", "--key", "one", "--token", "two"], ["--token", "…"], ["--token", "two"]),
        (
            ["--key", "one", "-y", "--key", "two"],
            ["--key", "…", "-z", "--key", "…"],
            ["--key", "one", "-z", "--key", "two"],
        ),
        (["--key", "one", "--key", "one"], ["--key", "…"], ["--key", "one"]),
        (["--key", "one", "--key", "two"], ["--key", "…"], None),
        (["--key", "one"], ["--token", "…"], None),
    ],
)
async def test_no_argument_gets_the_secret_of_another(
    arguments: list[str], sent: list[str], stored: list[str] | None, tmp_path: Path
) -> None:
    file = write(tmp_path, {"mcpServers": {"a": {"command": "x", "args": arguments}}})
    if stored is None:
        with pytest.raises(McpServerInvalid, match="not known what '…' stands for"):
            await file.change("a", {"args": [*sent]})
        stored = arguments
    else:
        await file.change("a", {"args": [*sent]})
    assert json.loads((tmp_path / "mcp.json").read_text())["mcpServers"]["a"]["args"] == stored
