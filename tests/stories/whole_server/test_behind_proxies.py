"""The proxies of docs/how-to/behind-a-proxy.md, and a browser whose connections break."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import anyio
import pytest

from tests.docs.pages import ROOT, blocks
from tests.support.chromium import CuttingProxy, chromium, needs_chromium
from tests.support.fake_ollama import FakeOllama
from tests.support.redis import free_port
from tests.support.server import Server, running_server
from tests.support.sse import events
from tests.support.waiting import until

PAGE = ROOT / "docs" / "how-to" / "behind-a-proxy.md"
NAME = "chat.example.org"
NGINX, CADDY = shutil.which("nginx", path="/usr/sbin:/usr/bin"), shutil.which("caddy")

Configure = Callable[[Path, int, Server], list[str]]

pytestmark = [pytest.mark.slow]


def shown(language: str) -> str:
    return next(block.text for block in blocks(PAGE) if block.language == language)


def nginx(folder: Path, port: int, server: Server) -> list[str]:
    """The page's block without TLS, to this server."""
    block = shown("nginx").replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
    block = block.replace("127.0.0.1:8000", server.url.removeprefix("http://"))
    paths = "".join(
        f"{name}_temp_path {folder};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log stderr;\n"
        f"events {{}} http {{ access_log off; {paths}\n{block}\n}}"
    )
    return [str(NGINX), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]


def caddy(folder: Path, port: int, server: Server) -> list[str]:
    """The same of the other proxy."""
    block = shown("caddyfile").replace(NAME, f"http://{NAME}:{port}")
    block = block.replace("127.0.0.1:8000", server.url.removeprefix("http://"))
    (folder / "Caddyfile").write_text(f"{{\n admin off\n}}\n{block}")
    return [str(CADDY), "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


@contextlib.asynccontextmanager
async def running(arguments: list[str], port: int, folder: Path) -> AsyncIterator[None]:
    """The proxy, once it listens."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        env={"HOME": str(folder), "PATH": "/usr/bin"},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        with anyio.fail_after(30):
            while not await listens(port):
                assert process.returncode is None, "the proxy ended"
                await anyio.sleep(0.02)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


@pytest.mark.parametrize(
    ("proxy", "program"),
    [
        pytest.param(nginx, NGINX, id="nginx"),
        pytest.param(caddy, CADDY, id="caddy"),
    ],
)
async def test_a_stream_comes_through_a_proxy_as_it_goes_and_ends_with_its_client(
    proxy: Configure, program: str | None, tmp_path: Path, ollama: FakeOllama
) -> None:
    if program is None:
        pytest.skip("this proxy is not installed")
    port, folder = free_port(), tmp_path / "proxy"
    folder.mkdir()
    # The workers of nginx give up root; what they write lies below.
    for path in (tmp_path, folder):
        path.chmod(0o777)
    async with (
        running_server(
            data_dir=tmp_path, ollama=ollama, allowed_hosts=NAME, heartbeat_seconds=0.2
        ) as server,
        running(proxy(folder, port, server), port, folder),
        aiohttp.ClientSession(headers={"Host": NAME}) as client,
    ):
        api = f"http://127.0.0.1:{port}/api/v1"
        async with client.post(f"{api}/sessions", json={"model": "qwen3:14b"}) as made:
            assert made.status == 201, await made.text()
            session_id = (await made.json())["session_id"]
        # A page from the proxy's own address, port included, is none of another site.
        own = {"Host": f"{NAME}:{port}", "Origin": f"http://{NAME}:{port}"}
        async with client.get(f"{api}/models", headers=own) as page:
            assert page.status == 200, await page.text()
        async with client.ws_connect(f"http://127.0.0.1:{port}/ws/chat") as socket:
            assert (await socket.receive_json(timeout=60))["event"] == "system:ready"
        gate = asyncio.Event()
        ollama.reply(["Hel", "lo", "!"], gate=gate, pause_after=1)
        address = f"{api}/chat/{session_id}/stream"
        with anyio.fail_after(30):
            async with client.post(address, json={"message": "Hi"}) as answer:
                assert answer.status == 200, await answer.text()
                seen = b""
                # The model says no more before the gate opens: both came through at once.
                while b"Hel" not in seen or len(re.findall(rb"(?m)^:", seen)) < 2:
                    seen += await answer.content.readany()
                gate.set()
                kinds = [event.event async for event in events(answer.content.iter_any())]
        assert kinds[-1] == "done"
        await client_leaves(client, address, ollama)


async def client_leaves(client: aiohttp.ClientSession, address: str, ollama: FakeOllama) -> None:
    """The proxy hands on that nobody reads any more, and the model is stopped."""
    ollama.reply(["a ", "b "], gate=asyncio.Event(), pause_after=1)
    async with client.post(address, json={"message": "Hi"}) as answer:
        with anyio.fail_after(30):
            seen = b""
            while b"a " not in seen:
                seen += await answer.content.readany()
    await ollama.disconnected()


WORDS = [f"{number} " for number in range(300)]
PAUSE = 0.04
CUT_SECONDS = 2.0

READERS = """<!doctype html><script>
const kinds = ["run_start", "content_delta", "message_complete", "error", "done"];
const read = path => new Promise(resolve => {
  const found = {events: []};
  const source = new EventSource(path);
  for (const kind of kinds) source.addEventListener(kind, event => {
    if (event.data !== undefined)
      found.events.push([Number(event.lastEventId), event.type, JSON.parse(event.data)]);
    else if (source.readyState === EventSource.CLOSED) resolve(found);
  });
});
const paths = new URLSearchParams(location.search).getAll("read");
Promise.all(paths.map(read)).then(
  all => fetch("/report", {method: "POST", body: JSON.stringify(all)}));
</script>"""


@needs_chromium
@pytest.mark.slow
async def test_the_text_is_complete_and_in_order_and_the_browser_stops_by_itself(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    gate = asyncio.Event()
    ollama.reply(WORDS, delay=PAUSE, gate=gate, pause_after=len(WORDS) // 2)
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        session_id = await server.new_session()
        status, run = await server.post(f"/chat/{session_id}/runs", {"message": "Go."})
        assert status == 202, run
        paths = [f"/api/v1/runs/{run['run_id']}/events", f"/api/v1/chat/{session_id}/stream"]
        async with CuttingProxy(server.url, READERS, seconds=CUT_SECONDS) as proxy:
            address = f"{proxy.url}/page?{'&'.join(f'read={path}' for path in paths)}"
            async with chromium(address, tmp_path / "browser"):
                await until(lambda: proxy.cuts >= 4)  # of two readers, however late they come
                gate.set()
                with anyio.fail_after(100):
                    readers = await proxy.report
    for path, reader in zip(paths, readers, strict=True):
        numbers, kinds, _ = zip(*reader["events"], strict=True)
        assert list(numbers) == sorted(set(numbers))
        assert [kind for kind in kinds if kind != "content_delta"] == [
            "run_start",
            "message_complete",
            "done",
        ]
        texts = [data["content"] for _, kind, data in reader["events"] if kind == "content_delta"]
        assert "".join(texts) == "".join(WORDS)
        # It came once more when it had all, and then no more.
        answers = [status for answered, status in proxy.answers if answered == path]
        assert answers == [*[200] * (len(answers) - 1), 204]
