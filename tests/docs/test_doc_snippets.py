"""The commands and programs of the pages are run, and do what the pages show."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
import pytest_asyncio

from mochi_server.server.initialise import initialise
from mochi_server.tools.folder.package import load_package
from mochi_server.tools.loading import FolderSpec
from tests.docs.pages import ROOT, Block, blocks
from tests.support.fake_ollama import FakeOllama
from tests.support.local_model import MODEL, folder_with_model
from tests.support.pytest_runs import pytest_in
from tests.support.sandboxes import bubblewrap_or_skip
from tests.support.server import Server, environment, running_server
from tests.support.site import Site, running_site

README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
FRONT_END = ROOT / "docs" / "how-to" / "write-a-front-end.md"
SIMPLE = ROOT / "docs" / "how-to" / "use-the-simple-routes.md"
PROXY = ROOT / "docs" / "how-to" / "behind-a-proxy.md"
WRITE_A_TOOL = ROOT / "docs" / "how-to" / "write-a-tool.md"
WORKSPACE = ROOT / "docs" / "how-to" / "give-a-model-a-workspace.md"
LIBRARY = ROOT / "docs" / "how-to" / "use-it-as-a-library.md"
ADD_A_PROVIDER = ROOT / "docs" / "how-to" / "add-a-provider.md"

ADDRESS = "localhost:8000"
BETWEEN = "-- end of a block --"
CHANGING = re.compile(
    r"(?P<anything>…)"
    r"|(?P<id>\b[0-9a-f]{10}\b)"
    r"|(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z)"
)
"""What a page cannot know: ids and times; and ``…`` stands for anything."""

PATTERNS = {
    "anything": ".*",
    "id": "[0-9a-f]{10}",
    "time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z",
}

pytestmark = pytest.mark.slow


def pattern_of(shown: str) -> str:
    """What a page shows, as an expression."""
    parts, end = [], 0
    for found in CHANGING.finditer(shown.strip()):
        parts.append(re.escape(shown.strip()[end : found.start()]))
        parts.append(PATTERNS[str(found.lastgroup)])
        end = found.end()
    return "".join([*parts, re.escape(shown.strip()[end:])])


def curl_steps(page: Path) -> Iterator[tuple[str, str | None]]:
    """Each block of commands with ``curl``, and what the page shows as its output."""
    following: list[Block | None] = [*blocks(page)[1:], None]
    for block, after in zip(blocks(page), following, strict=True):
        if block.language == "bash" and "curl" in block.text:
            shown = after.text if after is not None and after.language in {"json", "text"} else None
            yield block.text, shown


async def run(script: str, server: Server, folder: Path) -> str:
    """The output of a script that talks to this server; it must succeed."""
    with anyio.fail_after(120):
        done = await anyio.run_process(
            ["bash", "-euo", "pipefail", "-c", script.replace(ADDRESS, server.url[7:])],
            cwd=folder,
            env={**environment(), "no_proxy": "*"},
        )
    return done.stdout.decode()


async def run_page(page: Path, server: Server, folder: Path) -> None:
    """Run the commands of a page in one shell and compare each output."""
    steps = list(curl_steps(page))
    script = f"\nprintf '\\n{BETWEEN}'\n".join(commands for commands, _ in steps)
    outputs = (await run(script, server, folder)).split(f"\n{BETWEEN}")
    for (commands, shown), output in zip(steps, outputs, strict=True):
        if shown is not None:
            fits = re.fullmatch(pattern_of(shown), output.strip(), re.DOTALL)
            assert fits, f"{commands}\nis shown as\n{shown}\nbut prints\n{output.strip()}"


@asynccontextmanager
async def server_with_model(
    folder: Path, ollama: FakeOllama | None = None
) -> AsyncIterator[Server]:
    models = await anyio.to_thread.run_sync(folder_with_model, folder / "cache")
    async with running_server(
        data_dir=folder, ollama=ollama, models_dir=models, heartbeat_seconds=300
    ) as server:  # the pages show no comments of a stream that waits for a model
        yield server


async def test_the_session_of_the_readme_is_what_happens(tmp_path: Path) -> None:
    assert MODEL in README.read_text("utf-8")
    async with server_with_model(tmp_path) as server:
        await run_page(README, server, tmp_path)


async def test_the_program_of_the_readme_prints_what_is_shown(tmp_path: Path) -> None:
    program, shown = next(
        (block.text, after.text)
        for block, after in zip(blocks(README), blocks(README)[1:], strict=False)
        if block.language == "python"
    )
    models = await anyio.to_thread.run_sync(folder_with_model, tmp_path / "cache")
    with anyio.fail_after(120):
        done = await anyio.run_process(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment(models_dir=models)
        )
    assert done.stdout.decode() == shown


async def test_the_programs_of_the_page_on_the_library_print_what_is_shown(tmp_path: Path) -> None:
    first, capital, second, three = (block.text for block in blocks(LIBRARY))
    async with FakeOllama() as ollama:
        ollama.reply(["The capital ", "of France ", "is Paris."])
        ollama.reply(tool_calls=[{"name": "stock", "arguments": {"article": "apples"}}])
        ollama.reply(["Yes, three apples ", "are left."])
        for program, shown in ((first, capital), (second, three)):
            with anyio.fail_after(120):
                done = await anyio.run_process(
                    [sys.executable, "-c", program],
                    cwd=tmp_path,
                    env=environment(ollama_host=ollama.url),
                )
            assert done.stdout.decode() == shown
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


async def test_the_tutorial_works_from_its_first_command_to_its_last(tmp_path: Path) -> None:
    async with FakeOllama() as ollama:
        ollama.models.clear()
        ollama.add_model("qwen3:8b")
        ollama.reply(["Paris", "."], thinking=["The user asks ", "for a city."])
        sum_ = {"name": "calculate", "arguments": {"expression": "2340 * 17.5 / 100"}}
        ollama.reply(tool_calls=[sum_])
        ollama.reply(["17.5 % of 2340 ", "is 409.5."])
        ollama.reply(tool_calls=[{"name": "list_files", "arguments": {}}])
        ollama.reply(["There is one file, ", "welcome.txt."])
        initialise(tmp_path)
        async with server_with_model(tmp_path, ollama) as server:
            await run_page(TUTORIAL, server, tmp_path)
    assert ollama.chats[0]["think"] is True


async def test_the_commands_of_the_page_on_workspaces_do_what_it_shows(tmp_path: Path) -> None:
    bubblewrap_or_skip()
    reading = {"name": "workspace__read_file", "arguments": {"path": "data/prices.csv"}}
    async with FakeOllama() as ollama:
        ollama.reply(tool_calls=[reading])
        ollama.reply(["A pear costs 4."])
        async with running_server(
            data_dir=tmp_path, ollama=ollama, workspace_enabled=True
        ) as server:
            await run_page(WORKSPACE, server, tmp_path)
    assert "pear,4" in ollama.chats[1]["messages"][-1]["content"]


async def test_the_commands_of_the_pages_show_an_error_instead_of_taking_it_for_an_id(
    tmp_path: Path,
) -> None:
    (first, *_), (create, *more) = [
        [commands for commands, _ in curl_steps(page)] for page in (README, TUTORIAL)
    ]
    again = next(text for text in more if "id=$(" in text)
    async with running_server(data_dir=tmp_path) as server:
        for commands in (first, create, again.partition("curl -N")[0]):
            output = await run(f"id=\n{commands}\nprintf 'id: <%s>' $id", server, tmp_path)
            assert '"error": {"code": ' in output
            assert output.endswith("id: <>")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def common(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("common")
    initialise(folder)
    async with running_site(folder) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def site(common: Site) -> AsyncIterator[Site]:
    """A server with the examples, for what needs a session only."""
    async with common.lent():
        yield common


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """The Python of "write a front end", as a module."""
    path = tmp_path / "reader.py"
    path.write_text(next(b.text for b in blocks(FRONT_END) if b.language == "python"))
    return path


@pytest.mark.asyncio(loop_scope="module")
async def test_the_python_reader_prints_an_answer_and_an_error(
    tmp_path: Path, site: Site, reader: Path
) -> None:
    server, ollama = site.server, site.ollama
    session = await server.new_session()
    ollama.reply(["Hel", "lo"])
    ollama.reply(["Half"], error="the runner has stopped")
    calls = "\n".join(
        f"say({server.url!r}, {name!r}, 'Hi')" for name in (session, session, "nobody")
    )
    done = await anyio.run_process(
        [sys.executable, "-c", f"from reader import say\n{calls}"], cwd=tmp_path
    )
    lines = done.stdout.decode().splitlines()
    assert lines[:2] == ["Hello", "Half"]
    assert lines[2].startswith("OLLAMA_ERROR: ")
    assert lines[-1] == "SESSION_NOT_FOUND: Session with ID 'nobody' not found."


@pytest.mark.asyncio(loop_scope="module")
async def test_the_javascript_reader_yields_every_event(tmp_path: Path, site: Site) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the JavaScript of the page cannot be run")
    program = next(b.text for b in blocks(FRONT_END) if b.language == "javascript")
    server, ollama = site.server, site.ollama
    session = await server.new_session()
    ollama.reply(["Hel", "lo"])
    ours = (
        f"const id = {session!r};\n"
        "const show = (text) => console.log(text);\n"
        "const complain = (text) => console.log('error', text);\n"
    )
    program = ours + program.replace("http://localhost:8000", server.url)
    script = tmp_path / "reader.mjs"
    script.write_text(program)
    done = await anyio.run_process([node, str(script)], cwd=tmp_path)
    assert done.stdout.decode().splitlines() == ["Hel", "lo"]


async def test_the_simple_routes_answer_as_shown_and_are_read_as_shown(tmp_path: Path) -> None:
    initialise(tmp_path)
    (program,) = [block.text for block in blocks(SIMPLE) if block.language == "javascript"]
    exec(next(block.text for block in blocks(SIMPLE) if block.language == "python"), {})
    async with FakeOllama() as ollama, running_server(data_dir=tmp_path, ollama=ollama) as server:
        ollama.reply(["Paris."])
        ollama.reply(["Rome", "."])
        ollama.reply(
            tool_calls=[{"name": "calculate", "arguments": {"expression": "12 * 13"}}],
            eval_count=9,
            prompt_eval_count=90,
        )
        ollama.reply(["156."], eval_count=2, prompt_eval_count=99)
        await run_page(SIMPLE, server, tmp_path)
        if (node := shutil.which("node")) is None:
            pytest.skip("node is not installed: the JavaScript of the page cannot be run")
        ollama.reply(["Hel", "lo"], error="the runner has stopped")
        script = tmp_path / "simple.mjs"
        program = program.replace("http://localhost:8000", server.url)
        again = "\nawait ask('SERVER', {}).next().catch((error) => console.log(error.code));"
        script.write_text(
            "const show = (text) => console.log(text);\n"
            "process.on('uncaughtException', (error) => console.log(error.code));\n"
            + again.replace("SERVER", server.url)
            + program
        )
        with anyio.fail_after(100):
            done = await anyio.run_process([node, str(script)], cwd=tmp_path)
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "VALIDATION_ERROR"
    assert "".join(lines[1:-1]) == "Hello"
    assert lines[-1] == "OLLAMA_ERROR"


async def test_the_three_answers_behind_a_proxy_are_as_told(tmp_path: Path) -> None:
    script = blocks(PROXY)[-1].text
    token = "a-long-random-text"
    async with running_server(data_dir=tmp_path, api_token=token) as server:
        output = await run(f"MOCHI_API_TOKEN={token}\n{script}", server, tmp_path)
    assert output.split() == ["401", "200", "403"]


async def test_the_provider_of_the_page_answers_in_a_server(tmp_path: Path) -> None:
    provider, settings, *_ = [b.text for b in blocks(ADD_A_PROVIDER) if b.language == "python"]
    (tmp_path / "parrot.py").write_text(provider)
    (tmp_path / "my_settings.py").write_text(settings)
    starter = (
        "import os, sys; os.environ['DJANGO_SETTINGS_MODULE'] = 'my_settings'; "
        f"sys.path.insert(0, {os.fspath(tmp_path)!r}); "
        "from mochi_server.__main__ import main; sys.exit(main())"
    )
    command = ("-c", starter, "--port", "0")
    async with running_server(data_dir=tmp_path, command=command) as server:
        session = await server.new_session("parrot/parrot")
        status, reply = await server.post(f"/chat/{session}", {"message": "Polly"})
    assert status == 200
    assert reply["message"]["content"] == "You said: Polly "


async def test_the_shortest_tool_of_the_page_is_a_tool(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text(blocks(WRITE_A_TOOL)[0].text)
    package = load_package(FolderSpec(path=tmp_path / "tools"), generation="page")
    assert package.description.problems == ()
    assert package.functions["count_letters"].function(word="a b c") == "3"


def test_the_tools_of_the_page_pass_the_tests_of_the_page(tmp_path: Path) -> None:
    _, lists, library, *_, tests = [b.text for b in blocks(WRITE_A_TOOL) if b.language == "python"]
    (tmp_path / "data" / "tools").mkdir(parents=True)
    (tmp_path / "data" / "tools" / "__init__.py").write_text(lists)
    (tmp_path / "data" / "tools" / "library.py").write_text(library)
    (tmp_path / "data" / "test_library.py").write_text(tests)
    done = pytest_in(tmp_path, "data")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    package = load_package(FolderSpec(path=tmp_path / "data" / "tools"), generation="page")
    assert package.description.groups == {"books": ("find_books", "borrow_book")}
    told = {tool.name: tool for tool in package.description.tools}
    assert (told["borrow_book"].destructive, told["find_books"].destructive) == (True, False)
    assert (told["borrow_book"].sequential, told["find_books"].timeout) == (True, 5)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_javascript_decides_about_a_call_and_sees_it_settled(
    tmp_path: Path, site: Site
) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the JavaScript of the page cannot be run")
    reader, decider = [b.text for b in blocks(FRONT_END) if b.language == "javascript"]
    server, ollama = site.server, site.ollama
    session = await server.new_session(tool_settings={"tools": ["calculate"]})
    ollama.reply(
        tool_calls=[{"name": "calculate", "arguments": {"expression": "1 + 1"}}] * 2,
    )
    ollama.reply(["Done"])
    ours = f"""
        const base = {server.url!r}, id = {session!r};
        const answers = [
            (q) => decide(base, id, q, true, {{ args: {{ expression: "2 + 2" }} }}),
            (q) => decide(base, id, q, false, {{ reason: "Once is enough." }}),
        ];
        const ask = (q) => answers[q.queue_position - 1](q);
        const settle = (d) => console.log("settled", d.approved, d.edited, open.size);
        for await (const {{ event, data }} of turn(base, id, {{ message: "Hi" }})) {{
            follow(event, data);
            if (event === "tool_result") console.log(data.result, data.error_message);
        }}
        await decide(base, id, {{ confirmation_id: "conf_0" }}, true)
            .catch((error) => console.log(error.code));
    """
    script = tmp_path / "decider.mjs"
    script.write_text(reader.partition("const stop =")[0] + decider + ours)
    with anyio.fail_after(100):
        done = await anyio.run_process([node, str(script)], cwd=tmp_path)
    assert done.stdout.decode().splitlines() == [
        "settled true true 0",
        "settled false false 0",
        "null the user denied this call. Reason: Once is enough.",
        "4 null",
        "CONFIRMATION_NOT_FOUND",
    ]
