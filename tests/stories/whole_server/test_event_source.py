"""A browser's own ``EventSource`` reads a run over connections that break."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.support.chromium import CuttingProxy, chromium, needs_chromium
from tests.support.fake_ollama import FakeOllama
from tests.support.server import running_server

WORDS = [f"{number} " for number in range(300)]
PAUSE = 0.04
CUT_SECONDS = 2.0

PAGE = """<!doctype html><script>
const kinds = ["run_start", "content_delta", "message_complete", "error", "done"];
const read = path => new Promise(resolve => {
  const found = {events: [], opened: 0};
  const source = new EventSource(path);
  source.onopen = () => { found.opened += 1; };
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
@pytest.mark.timeout(180)
async def test_the_text_is_complete_and_in_order_and_the_browser_stops_by_itself(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    ollama.reply(WORDS, delay=PAUSE)
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        session_id = await server.new_session()
        status, run = await server.post(f"/chat/{session_id}/runs", {"message": "Go."})
        assert status == 202, run
        paths = [f"/api/v1/runs/{run['run_id']}/events", f"/api/v1/chat/{session_id}/stream"]
        async with CuttingProxy(server.url, PAGE, seconds=CUT_SECONDS) as proxy:
            address = f"{proxy.url}/page?{'&'.join(f'read={path}' for path in paths)}"
            async with chromium(address, tmp_path / "browser"):
                with anyio.fail_after(120):
                    readers = await proxy.report
    assert proxy.cuts >= 4
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
        assert proxy.requests.count(path) == reader["opened"] + 1
