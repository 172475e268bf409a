"""What the launcher counts."""

from __future__ import annotations

import os
import sys

import pytest

from mochi_server.sandbox.launcher import files_in_memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.mark.parametrize("folder", ["/tmp", "/", "/not/there"])
def test_files_of_the_machine_are_none_of_a_sandbox_that_is_being_made(folder: str) -> None:
    assert files_in_memory(os.getpid(), folder) == 0
