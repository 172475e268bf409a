"""What is checked before the server serves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mochi_server.config import load_settings
from mochi_server.server.startup import CannotStart, check_start


def test_images_cannot_lose_their_metadata_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(data_dir=tmp_path, strip_images=True)
    check_start(settings)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(CannotStart, match=r"pillow is missing: .*install .*\[images\]"):
        check_start(settings)
