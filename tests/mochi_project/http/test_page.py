"""How the page is served; tests/page drives it in a browser."""

from __future__ import annotations

import gzip
import re
from base64 import b64encode
from hashlib import sha256

import pytest
from django.test import AsyncClient

from mochi_project.http.page import OWN, StaticFolder

BROWSER = {"Accept": "text/html,*/*"}


async def get(path, **headers):
    return await AsyncClient().get(path, headers=headers)


async def test_a_browser_gets_the_page_compressed_and_with_a_strict_policy(api):
    response = await get("/", **{"Accept-Encoding": "gzip, br"})
    assert response.status_code == 200
    assert response["Content-Type"] == "text/html; charset=utf-8"
    policy = response["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    text = gzip.decompress(response.content).decode()
    assert "<script>" not in text
    version = await OWN.version()
    assert f'src="page/{version}/app/main.js"' in text
    again = await get("/", **{"If-None-Match": f'W/"other", {response["ETag"]}'})
    assert (again.status_code, again.content) == (304, b"")


async def test_the_frame_of_drawings_has_no_origin_and_runs_its_own_script_alone(api):
    response = await get("/page/x/frame/index.html")
    script = re.search("<script>(.*?)</script>", response.content.decode(), re.DOTALL)[1]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = response["Content-Security-Policy"]
    assert f"default-src 'none'; script-src blob: 'sha256-{digest}';" in policy
    assert policy.endswith("sandbox allow-scripts")
    assert "connect-src" not in policy


async def test_files_are_kept_for_ever_under_their_version_only(api):
    version = await OWN.version()
    response = await get(f"/page/{version}/app/main.js")
    assert response["Content-Type"] == "text/javascript; charset=utf-8"
    assert response["Cache-Control"] == "public, max-age=31536000, immutable"
    assert response.content == (OWN.folder / "app/main.js").read_bytes()
    old = await get("/page/0123456789abcdef/app/main.js")
    assert (old["Cache-Control"], old.content) == ("no-cache", response.content)
    known = await get("/page/0123456789abcdef/app/main.js", **{"If-None-Match": old["ETag"]})
    assert known.status_code == 304
    font = await get(f"/page/{version}/vendor/katex/fonts/KaTeX_Main-Regular.woff2")
    assert font["Content-Type"] == "font/woff2"


@pytest.mark.parametrize(
    "name", ["../settings.py", "app/../../settings.py", "app", "nothing.js", "%00", "//etc/passwd"]
)
async def test_nothing_else_is_served(api, name):
    response = await get(f"/page/{await OWN.version()}/{name}")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "NOT_FOUND"


async def test_another_folder_and_a_token(tmp_path, server_of):
    public = tmp_path / "public"
    (public / "assets").mkdir(parents=True)
    (public / "api").mkdir()
    (public / "index.html").write_text("<p>Mine</p>")
    (public / "assets" / "app.js").write_text("// mine")
    (public / "api" / "sessions").write_text("never")
    (public / ".env").write_text("secret")
    (public / "outside.txt").symlink_to(tmp_path / "outside.txt")
    (tmp_path / "outside.txt").write_text("secret")
    async with server_of(public_dir=public, api_token="t0ken") as server:

        async def status(path, **headers):
            async with server.http.get(server.url + path, headers=headers) as answer:
                return answer.status, await answer.text()

        assert await status("/") == (200, "<p>Mine</p>")
        assert await status("/assets/app.js") == (200, "// mine")
        token = {"Authorization": "Bearer t0ken"}
        for hidden in ("/.env", "/outside.txt", "/assets/../.env", "/assets"):
            assert (await status(hidden))[0] == 401
            assert (await status(hidden, **token))[0] == 404
        assert (await status("/api/sessions"))[0] == 401
        assert (await status("/api/v1/sessions"))[0] == 401
        assert (await status("/api/v1/sessions", **token))[0] == 200
        assert (await status("/page/x/app/main.js"))[0] == 404
        (public / "assets" / "app.js").write_text("// changed")
        assert await status("/assets/app.js") == (200, "// changed")


async def test_the_page_needs_no_token_and_ollamas_clients_get_their_answer(server_of):
    async with server_of(api_token="t0ken", ollama_at_root=True) as server:
        async with server.http.get(server.url, headers=BROWSER) as answer:
            page = await answer.text()
            assert answer.headers["Content-Security-Policy"]
        script = re.search(r'src="([^"]+)"', page)[1]
        async with server.http.get(f"{server.url}/{script}") as answer:
            assert answer.status == 200
        headers = {"Authorization": "Bearer t0ken"}
        async with server.http.get(server.url, headers=headers) as answer:
            assert await answer.text() == "Ollama is running"


async def test_without_the_page_the_root_leads_to_the_documentation(server_of):
    async with server_of(playground=False) as server:
        async with server.http.get(server.url, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (302, "/api/v1/docs")
        async with server.http.get(f"{server.url}/page/x/app/main.js") as answer:
            assert answer.status == 404


async def test_the_version_changes_with_a_name_or_a_content(tmp_path):
    versions = set()
    for name, content in (("a.js", "1"), ("a.js", "2"), ("b.js", "2")):
        for path in tmp_path.iterdir():
            path.unlink()
        (tmp_path / name).write_text(content)
        versions.add(await StaticFolder(tmp_path).version())
    assert len(versions) == 3
