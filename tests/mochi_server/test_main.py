from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys

import anyio
import pytest

from mochi_server import __version__
from mochi_server.__main__ import main
from mochi_server.config import MochiServerSettings, variable_of
from tests.support.redis import free_port
from tests.support.server import ROOT, environment, run_command, running_server
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("fresh_servers")


def test_help_shows_every_setting_with_its_default(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    for field in MochiServerSettings.model_fields:
        assert variable_of(field) in out
    assert "MOCHI_PORT [8000]" in out
    assert "MOCHI_MCP_OFFERED_TOOLS [*]" in out
    for option in ("--host", "--port", "--ollama-host", "--data-dir", "--log-level", "--workers"):
        assert option in out


async def test_the_version_is_told(tmp_path):
    ended = await run_command("--version", cwd=tmp_path)
    assert (ended.code, ended.out) == (0, f"mochi-server {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "variables", "variable", "allowed"),
    [
        (["--port", "abc"], {}, "MOCHI_PORT", "integer"),
        (["--port", "70000"], {}, "MOCHI_PORT", "65535"),
        (["--log-level", "loud"], {}, "MOCHI_LOG_LEVEL", "'DEBUG'"),
        (["--workers", "0"], {}, "MOCHI_WORKERS", "greater than or equal to 1"),
        (["--ollama-host", "ftp://x"], {}, "MOCHI_OLLAMA_HOST", "http://localhost:11434"),
        ([], {"MOCHI_PORT": "x"}, "MOCHI_PORT", "integer"),
        (["pull"], {"MOCHI_PORT": "x"}, "MOCHI_PORT", "integer"),
        ([], {"MOCHI_MAX_BODY_MB": "-1"}, "MOCHI_MAX_BODY_MB", "greater than 0"),
        ([], {"MOCHI_CORS_ORIGINS": "app.example"}, "MOCHI_CORS_ORIGINS", "http://localhost:3000"),
        ([], {"MOCHI_CORS_ORIGINS": "http://localhost:*"}, "MOCHI_CORS_ORIGINS", "wildcard"),
        ([], {"MOCHI_CORS_ORIGINS": "http://*.example.org"}, "MOCHI_CORS_ORIGINS", "wildcard"),
        ([], {"MOCHI_CORS_ORIGINS": "http://localhost:x"}, "MOCHI_CORS_ORIGINS", ":3000"),
        ([], {"OLLAMA_HOST": "ftp://x"}, "OLLAMA_HOST", "http://localhost:11434"),
        ([], {"MOCHI_API_TOKEN_FILE": "/nowhere"}, "MOCHI_API_TOKEN_FILE", "No such file"),
    ],
)
def test_a_wrong_value_is_one_line_and_code_2(  # noqa: PLR0917
    monkeypatch, capsys, arguments, variables, variable, allowed
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert variable in line
    assert allowed in line


@pytest.mark.parametrize(
    "address",
    [
        "ftp://me:s3cret@host",
        "http://me:s3cret@",
        "http://me:s3cret@host:port",
        "http://me:s3cret/x@host",
        "http://me:1#s3cret@host",
        "http://me:1?s3cret@host",
        "me:s3cret@host:port",
    ],
)
def test_a_wrong_address_is_told_without_its_password(monkeypatch, capsys, address):
    monkeypatch.setenv("MOCHI_OLLAMA_HOST", address)
    assert main(["pull", "nothing"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "MOCHI_OLLAMA_HOST" in line
    assert "must be an address such as http://localhost:11434" in line
    assert "s3cret" not in line


async def test_a_process_with_a_wrong_value_ends_with_code_2(tmp_path):
    ended = await run_command(cwd=tmp_path, env=environment(port="x"))
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--nonsense"], ["dance"], ["serve", "extra"]])
def test_a_wrong_argument_is_code_2(capsys, arguments):
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert arguments[-1] in capsys.readouterr().err


def test_an_unknown_command_is_told_each_one_that_there_is_once(capsys):
    assert main(["dance"]) == 2
    names = capsys.readouterr().err.split("there are: ")[1].rstrip(")\n").split(", ")
    assert {"serve", "mcp", "token"} < set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_port_in_use_is_one_line_and_code_1(tmp_path, workers):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        options = ("--port", port, "--workers", workers, "--data-dir", ".")
        ended = await run_command(*options, cwd=tmp_path)
    assert ended.code == 1
    (line,) = ended.err.splitlines()
    assert f"Port {port} of 127.0.0.1 is in use" in line
    assert "MOCHI_PORT" in line


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_one_line_and_code_1(monkeypatch, capsys, host):
    monkeypatch.setenv("MOCHI_SESSION_STORAGE", "memory")
    assert main(["--host", host, "--port", "0", "--data-dir", "."]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "MOCHI_HOST" in line


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_data_folder_that_cannot_be_written_is_one_line_and_code_1(capsys, tmp_path, workers):
    (tmp_path / "file").write_text("not a folder")
    folder = str(tmp_path / "file")
    assert main(["--port", "0", "--data-dir", folder, "--workers", workers]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be written" in line
    assert "MOCHI_DATA_DIR" in line


async def test_the_start_tells_where_what_and_how_and_sigterm_ends_it_in_order(
    tmp_path, ollama_url, server_of
):
    async with server_of(ollama=ollama_url) as server:
        await server.saw("/stream")
        log = server.log
        assert re.search(
            r"^mochi-server \S+ listens on http://127\.0\.0\.1:\d+$", log, re.MULTILINE
        )
        assert str(tmp_path / "chat_sessions") in log
        assert f"ollama at {ollama_url}: 2 models" in log
        assert re.search(r"^  local: no model \(run: \S*mochi-server pull\)$", log, re.MULTILINE)
        assert log.count("listens on") == 1
        assert "WARNING" not in log
        command = next(line for line in log.splitlines() if "curl" in line)
        assert '"model": "qwen3:14b' in command
        out = await in_shell(command, tmp_path)
        assert await server.stop(signal.SIGTERM) == 0
    assert '"finished":true' in out
    assert "Traceback" not in server.log


@pytest.mark.parametrize(("options", "opens"), [(["--open"], 1), (["--open", "--no-open"], 0)])
async def test_the_page_is_opened_where_a_desktop_is(tmp_path, monkeypatch, options, opens):
    opened, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o700)
    for name, value in {"BROWSER": str(browser), "DISPLAY": ":0"}.items():
        monkeypatch.setenv(name, value)
    for name in ("CI", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    command = ("-m", "mochi_server", "--test", "--port", "0", *options)
    async with running_server(data_dir=tmp_path, command=command) as server:
        await server.saw("page: ")
        await server.saw("/stream")
        if opens:
            await until(lambda: opened.exists() and opened.read_text())
        assert await server.stop(signal.SIGTERM) == 0
    assert opened.exists() == bool(opens)
    if opens:
        assert opened.read_text() == f"{server.url}/\n"


async def in_shell(command, folder):
    """What a command prints that somebody has copied."""
    with anyio.fail_after(100):
        done = await anyio.run_process(
            ["bash", "-c", command], cwd=folder, stderr=subprocess.DEVNULL, check=False
        )
    return done.stdout.decode()


@pytest.mark.parametrize(
    ("names", "told", "answer"),
    [
        (["x'; touch ran; '", "y$(touch ran)", "z:1b"], "z:1b", '"finished":true'),
        (["x'; touch ran; '", "y\x1b]0;title\x07"], "MODEL", "MODEL_NOT_FOUND"),
    ],
)
async def test_a_name_of_a_model_runs_nothing_in_the_shell_of_who_copies_the_command(  # noqa: PLR0917
    tmp_path, ollama, server_of, names, told, answer
):
    ollama.models.clear()
    for name in names:
        ollama.add_model(name)
    ollama.reply(["Hello"])
    async with server_of(ollama=ollama) as server:
        await server.saw("/stream")
        command = next(line for line in server.log.splitlines() if "curl" in line)
        assert f'"model": "{told}"' in command
        assert answer in await in_shell(command, tmp_path)
    assert not (tmp_path / "ran").exists()
    assert "\x1b" not in server.log


async def test_without_any_model_the_start_says_what_to_run_and_sigint_ends_it_in_order(server_of):
    async with server_of() as server:
        await server.saw("ollama pull")
        assert re.search(r"^  ollama at \S+: does not answer$", server.log, re.MULTILINE)
        assert re.search(
            r"^  local: no model \(run: \S*mochi-server pull\)$", server.log, re.MULTILINE
        )
        assert await server.stop(signal.SIGINT) == 0
    assert "Traceback" not in server.log


async def test_a_public_server_without_a_token_and_a_misspelt_variable_are_warned_about(server_of):
    async with server_of(host="0.0.0.0", olama_host="http://x") as server:
        await server.saw("ollama pull")
        assert "WARNING: open to the network without a token; set MOCHI_API_TOKEN" in server.log
        assert "MOCHI_OLAMA_HOST is not a setting (did you mean MOCHI_OLLAMA_HOST?)" in server.log
        assert "and on every other address of this machine, as MOCHI_HOST is 0.0.0.0" in server.log


async def test_a_public_server_with_a_token_keeps_it_to_itself(server_of):
    async with server_of(host="0.0.0.0", api_token="s3cret", log_level="debug") as server:
        await server.saw("ollama pull")
        assert (await server.get("/models"))[0] == 401
        assert "WARNING" not in server.log
        assert "s3cret" not in server.log


async def test_the_start_says_how_to_make_a_token_that_its_server_accepts(tmp_path, server_of):
    data = tmp_path / "data"
    data.mkdir()
    (data / "tokens.json").write_text('{"tokens": []}')
    (data / "tokens.json").chmod(0o600)
    async with server_of(data_dir=data) as server:
        await server.saw("every request needs a token")
        line = next(line for line in server.log.splitlines() if "needs a token" in line)
        command = line.split(":  ", 1)[1].replace("NAME", "alice")
        token = (await in_shell(command, tmp_path)).strip()
        headers = {"Authorization": f"Bearer {token}"}
        assert (await server.get("/models", headers=headers))[0] != 401


@pytest.mark.slow
async def test_an_idle_connection_is_kept_for_a_proxy_that_uses_it_again(server_of):
    """Longer than the 5 s of uvicorn, which are less than those of most proxies."""
    async with server_of() as server:
        reader, writer = await asyncio.open_connection(port=int(server.url.rpartition(":")[2]))
        writer.write(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n")
        with anyio.move_on_after(7) as waiting:
            await reader.read()  # what is left of the answer, then the end
        writer.close()
    assert waiting.cancelled_caught


async def test_workers_share_the_port_and_announce_once(ollama_url, server_of):
    async with server_of(ollama=ollama_url, workers=2) as server:
        await server.saw("/stream")
        assert server.log.count("listens on") == 1
        session_id = await server.new_session()
        for _ in range(8):
            assert (await server.get(f"/sessions/{session_id}"))[0] == 200
        assert await server.stop() == 0
    assert "Traceback" not in server.log


@pytest.mark.parametrize("reload", [(), ("--noreload",)])
async def test_runserver_streams(tmp_path, ollama, reload):
    ready = re.compile(r"server at (http://[^/\s]+)")
    command = (str(ROOT / "manage.py"), "runserver", f"127.0.0.1:{free_port()}", *reload)
    async with running_server(
        data_dir=tmp_path, ollama=ollama, command=command, ready=ready
    ) as server:
        await streams(server, ollama)


NOTES = """
import sys, threading

class Notes:
    def find_spec(self, name, path, target=None):
        threads = [thread.name for thread in threading.enumerate()]
        is_first = threading.current_thread() is threading.main_thread()
        if is_first and "django-main-thread" in threads and name.startswith(("mochi_", "chat")):
            with open({file!r}, "a") as notes:
                print(name, file=notes)

sys.meta_path.insert(0, Notes())
"""
"""Notes the modules that the first thread looks for while the one that serves does, too."""


async def test_a_reloading_runserver_imports_nothing_in_two_threads(tmp_path):
    """Packages import each other: the threads could wait for one another."""
    notes, manage = tmp_path / "notes", tmp_path / "manage.py"
    notes.touch()
    manage.write_text(NOTES.format(file=str(notes)) + (ROOT / "manage.py").read_text())
    ready = re.compile(r"server at (http://[^/\s]+)")
    command = (str(manage), "runserver", f"127.0.0.1:{free_port()}")
    async with running_server(data_dir=tmp_path, command=command, ready=ready):
        assert notes.read_text().split() == []


async def streams(server, ollama):
    """The first event comes while the model has not said the rest."""
    gate = asyncio.Event()
    ollama.reply(["one", "two"], gate=gate, pause_after=1)
    session_id = await server.new_session()
    said = []
    with anyio.fail_after(60):
        async for event in server.stream(f"/chat/{session_id}/stream", {"message": "Hi"}):
            said.append(event.event)
            gate.set()
    assert said[:2] == ["run_start", "content_delta"]
    assert said[-1] == "done"


async def test_create_app_serves_with_its_settings(tmp_path, ollama_url):
    script = tmp_path / "serve.py"
    script.write_text(
        "import sys\n"
        "from mochi_server import create_app\n"
        f"app = create_app(ollama_host={ollama_url!r}, data_dir={str(tmp_path / 'mine')!r},\n"
        "    cors_origins=['http://localhost:3000'])\n"
        "assert create_app.__module__ == 'mochi_server.app'\n"
        "try:\n"
        "    create_app(data_dir='other')\n"
        "except RuntimeError:\n"
        "    pass\n"
        "else:\n"
        "    sys.exit('a second application was made')\n"
        "import uvicorn\n"
        "uvicorn.run(app, port=0)\n"
    )
    ready = re.compile(r"running on (http://\S+)")
    async with running_server(
        data_dir=tmp_path, ollama="http://127.0.0.1:9", command=(str(script),), ready=ready
    ) as server:
        await server.new_session()
        assert len(list((tmp_path / "mine" / "chat_sessions").glob("*.json"))) == 1
        headers = {"Origin": "http://localhost:3000"}
        async with server.http.get(server.api + "/models", headers=headers) as response:
            assert response.status == 200
            assert response.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"


async def test_importing_the_library_brings_no_django(tmp_path):
    code = (
        "import sys, mochi_server\n"
        "from mochi_server import MochiServerSettings, Runtime, create_app\n"
        "bad = [name for name in sys.modules if name.split('.')[0] in ('django', 'ninja')]\n"
        "assert not bad, bad\n"
        "assert 'Runtime' in dir(mochi_server)\n"
        "try:\n    mochi_server.nothing\nexcept AttributeError:\n    pass\n"
        "try:\n    create_app(olama_host='x')\n"
        "except TypeError as error:\n    assert 'olama_host' in str(error)\n"
        "else:\n    sys.exit('accepted')\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=tmp_path, env=environment(),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    with anyio.fail_after(100):
        _, err = await process.communicate()
    assert process.returncode == 0, err.decode()


async def test_manage_names_a_wrong_setting_in_one_line(tmp_path):
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "manage.py"), "check", cwd=tmp_path,
        env=environment(port="x"), stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    with anyio.fail_after(100):
        _, err = await process.communicate()
    assert process.returncode == 2
    assert err.decode().startswith("MOCHI_PORT")
    assert "Traceback" not in err.decode()
