"""Each open stream holds three files: the client, the model, the claim."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

import pytest

from mochi_server.core.files import MOST_FILES, raise_file_limit
from tests.support.server import running_server

FEW = (
    "import resource, runpy; "
    "limits = resource.getrlimit(resource.RLIMIT_NOFILE); "
    "resource.setrlimit(resource.RLIMIT_NOFILE, (100, min(limits[1], 4000))); "
    "runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
)
UVICORN = ("-c", FEW.format(module="uvicorn"), "mochi_project.asgi:application", "--port", "0")
OURS = ("-c", FEW.format(module="mochi_server"), "--port", "0")


@pytest.mark.skipif(sys.platform != "linux", reason="looks at another process's limits")
@pytest.mark.parametrize(
    ("command", "ready"),
    [(OURS, r"listens on (http://\S+)"), (UVICORN, r"running on (http://\S+)")],
    ids=["mochi-server", "uvicorn"],
)
async def test_a_server_may_open_as_many_files_as_the_system_allows(
    tmp_path: Path, command: tuple[str, ...], ready: str
) -> None:
    async with running_server(
        data_dir=tmp_path, command=command, ready=re.compile(ready)
    ) as server:
        soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        assert soft == hard


class Limits:
    """A system with these limits, which takes no more than ``most``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, most: int) -> None:
        self.now, self.most = (soft, hard), most
        monkeypatch.setattr(resource, "getrlimit", lambda _: self.now)
        monkeypatch.setattr(resource, "setrlimit", self.set)

    def set(self, _: int, limits: tuple[int, int]) -> None:
        if limits[0] > self.most:
            raise ValueError("not allowed to raise maximum limit")
        self.now = limits


@pytest.mark.parametrize(
    ("soft", "hard", "most", "after"),
    [
        (1024, 4096, 10**9, 4096),
        (1024, 2**31, 2**31, MOST_FILES),  # a container without limits
        (256, resource.RLIM_INFINITY, 10_240, 10_240),  # macOS
        (256, resource.RLIM_INFINITY, 2**31, MOST_FILES),
        (256, 512, 128, 256),
        (4096, 4096, 10**9, 4096),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 10**9, resource.RLIM_INFINITY),
        (2**30, 2**31, 2**31, 2**30),
    ],
)
def test_the_limit_is_raised_as_far_as_it_goes_and_never_lowered(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, most: int, after: int
) -> None:
    limits = Limits(monkeypatch, soft, hard, most)
    raise_file_limit()
    assert limits.now == (after, hard)
