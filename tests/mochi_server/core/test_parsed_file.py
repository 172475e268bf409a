"""A file that is parsed again when it has changed."""

import time

import pytest

from mochi_server.core.parsed_file import ParsedFile, is_steady
from tests.support.disk import no_more_files, wait_for_tick


def test_a_file_is_parsed_again_only_when_it_has_changed_or_could_not_be_read(tmp_path):
    path, parsed = tmp_path / "a", []

    def parse(path):
        parsed.append(path.read_text())
        return int(parsed[-1])

    file = ParsedFile(path, parse)
    assert file.load() is None
    for number in range(20):  # within one tick of the clock of the file system, and of one size
        path.write_text(f"{number:02}")
        assert file.load() == number
    with no_more_files(path), pytest.raises(OSError, match="Too many open files"):
        ParsedFile(path, parse).load()
    del parsed[:]
    assert [file.load() for _ in range(3)] == [19] * 3
    assert parsed == ["19"]
    path.write_text("x")
    wait_for_tick(path)
    for _ in range(2):
        with pytest.raises(ValueError, match="'x'"):
            file.load()
    assert parsed == ["19", "x", "x"]
    path.unlink()
    assert file.load() is None


@pytest.mark.parametrize(
    ("seconds", "rest", "steady"),
    [(0.05, 1, False), (0.2, 1, True), (0.2, 0, False), (3, 0, True), (-10, 1, False)],
)
def test_a_time_tells_once_the_clock_has_moved_on(seconds, rest, steady):
    changed = time.time_ns() - int(seconds * 1e9)
    assert is_steady(changed - changed % 1_000_000 + rest) == steady
