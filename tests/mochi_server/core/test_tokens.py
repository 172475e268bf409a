from __future__ import annotations

import json
import logging
import os
import stat
from datetime import timedelta
from typing import Any

import pytest

from mochi_server.core.caller import RESERVED_NAMES
from mochi_server.core.tokens import PREFIX, AccessTokenFile, TokensUnusable
from tests.support.disk import no_more_files


@pytest.fixture
def file(tmp_path):
    return AccessTokenFile(tmp_path / "tokens.json", tmp_path / "use")


def another(file: AccessTokenFile) -> AccessTokenFile:
    """The same file as another process sees it."""
    return AccessTokenFile(file.path, file.path.parent / "use")


def test_the_file_has_a_hash_and_never_the_token(file):
    token = file.add("alice", ["chat"])
    assert token.startswith(PREFIX)
    assert len(token) == len(PREFIX) + 40
    text = file.path.read_text()
    assert token not in text
    assert token.removeprefix(PREFIX) not in text
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_a_token_is_found_and_no_other_text_is(file):
    token = file.add("alice", ["chat", "tools"])
    found = file.find([b"wrong", token.encode()])
    assert (found.name, found.rights) == ("alice", ("chat", "tools"))
    for wrong in (b"", b"alice", token[:-1].encode(), token.upper().encode(), b"\xff"):
        assert file.find([wrong]) is None
    stored = json.loads(file.path.read_text())["tokens"][0]["sha256"]
    assert file.find([stored.encode()]) is None, "a hash is no token"


def test_none_is_demanded_before_the_first_one_is_made(file):
    assert not file.is_demanding
    file.add("alice", ["read"])
    assert file.is_demanding


def test_who_revokes_the_last_one_opens_nothing(file):
    token = file.add("alice", ["read"])
    other = another(file)
    assert other.find([token.encode()]) is not None
    assert file.revoke("alice") == 0
    assert other.find([token.encode()]) is None
    assert other.is_demanding
    assert another(file).is_demanding


def test_a_change_holds_at_once_in_other_processes(file):
    other = another(file)
    tokens = {}
    for number in range(20):  # within one tick of the clock of the file system
        tokens[number] = file.add(f"t{number}", ["read"])
        assert other.find([tokens[number].encode()]) is not None
    for number in range(20):
        file.revoke(f"t{number}")
        assert other.find([tokens[number].encode()]) is None


def test_an_expired_token_is_none(file):
    token = file.add("alice", ["read"], lifetime=timedelta(days=-1))
    assert file.find([token.encode()]) is None
    assert file.is_demanding


def test_a_token_with_two_names_is_accepted_as_long_as_one_of_them(file):
    token = file.add("alice", ["read"])
    (entry,) = json.loads(file.path.read_text())["tokens"]
    old = {**entry, "name": "old", "expires_at": "2020-01-01T00:00:00Z"}
    file.path.write_text(json.dumps({"tokens": [entry, old]}))
    found = file.find([token.encode()])
    assert found.name == "alice"


def test_a_name_can_be_used_once_and_must_be_no_name_of_the_server(file):
    file.add("alice", ["read"])
    for name in ("alice", "", "a b", "../x", "-x", ".x", "a" * 65, "a\n", *RESERVED_NAMES):
        with pytest.raises(ValueError, match=r"name|token|called"):
            file.add(name, ["read"])
    assert [token.name for token in file.load()] == ["alice"]


def test_the_last_use_is_known(file):
    token = file.add("alice", ["read"])
    assert file.last_used("alice") is None
    file.find([token.encode()])
    assert file.last_used("alice") is not None
    file.revoke("alice")
    file.add("alice", ["read"])
    assert file.last_used("alice") is None


def entry(**changes: Any) -> dict[str, Any]:
    return {"name": "eve", "sha256": "0" * 64, "rights": ["admin"], **changes}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not JSON"),
        ('{"tokens": [', "not JSON"),
        ("[]", "the file: Input should be an object"),
        ("{}", "required"),
        ({"tokens": [entry(rights=["root"])]}, "rights"),
        ({"tokens": [entry(rights=[])]}, "rights"),
        ({"tokens": [entry(sha256="x")]}, "sha256"),
        ({"tokens": [entry(sha256="0" * 64 + "\n")]}, "sha256"),
        ({"tokens": [entry(name="token")]}, "name"),
        ({"tokens": [entry(expires_at="soon")]}, "expires_at"),
        ({"tokens": [entry(expires_at="9999-12-31T23:59:59-05:00")]}, "1 to 9999"),
        ({"tokens": [entry(expires=None)]}, "expires"),
        ({"tokens": [entry(), entry()]}, "one name"),
        ("x" * 1_000_001, "larger"),
    ],
)
def test_a_file_with_a_mistake_lets_nobody_in_and_says_why_once(file, caplog, content, reason):
    token = file.add("alice", ["admin"])
    file.path.write_text(content if isinstance(content, str) else json.dumps(content))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert file.is_demanding
            assert file.find([token.encode()]) is None
    (record,) = caplog.records
    assert reason in record.getMessage()
    assert "0" * 64 not in record.getMessage()
    with pytest.raises(TokensUnusable, match=reason):
        file.add("bob", ["read"])
    with pytest.raises(TokensUnusable, match=reason):
        file.revoke("alice")


def test_what_is_no_plain_file_lets_nobody_in(file, tmp_path):
    token = file.add("alice", ["admin"])
    elsewhere = file.path.rename(tmp_path / "elsewhere.json")
    file.path.symlink_to(elsewhere)
    for is_new in (False, True):
        seen = another(file) if is_new else file
        assert seen.is_demanding
        assert seen.find([token.encode()]) is None
    file.path.unlink()
    file.path.symlink_to(tmp_path / "nothing")
    assert another(file).is_demanding
    file.path.unlink()
    os.mkfifo(file.path)
    assert another(file).find([token.encode()]) is None
    file.path.unlink()
    file.path.mkdir()
    assert another(file).is_demanding


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_lets_nobody_in(file, mode):
    token = file.add("alice", ["admin"])
    file.path.chmod(mode)
    assert file.find([token.encode()]) is None
    file.path.chmod(0o600)
    assert file.find([token.encode()]) is not None


def test_a_file_that_has_gone_still_demands_a_token(file, caplog):
    token = file.add("alice", ["admin"])
    assert file.find([token.encode()]) is not None
    file.path.unlink()
    with caplog.at_level(logging.ERROR):
        assert file.find([token.encode()]) is None
        assert file.is_demanding
    assert "it has gone" in caplog.text
    assert not another(file).is_demanding, "a server that starts now knows of no token"


def test_a_moment_without_free_files_shuts_nobody_out_for_good(file):
    token = file.add("alice", ["admin"])
    with no_more_files(file.path):
        assert file.find([token.encode()]) is None
    assert file.find([token.encode()]) is not None


def test_a_person_may_write_the_file(file):
    token = file.add("alice", ["chat"])
    document = json.loads(file.path.read_text())
    document["tokens"][0]["rights"] = ["admin"]
    document["tokens"][0]["expires_at"] = "2999-01-01T00:00:00"
    del document["tokens"][0]["created_at"]
    file.path.write_text(json.dumps(document))
    found = file.find([token.encode()])
    assert found.rights == ("admin",)
    caller = file.caller(found, address=None, owns=True)
    assert caller.owner is None, "who may do everything sees all sessions"


def test_a_caller_is_valid_as_long_as_its_token_is_as_it_was(file):
    token = file.add("alice", ["chat"])
    found = file.find([token.encode()])
    caller = file.caller(found, address="::1", owns=True)
    assert (caller.name, caller.owner, caller.rights) == ("alice", "alice", {"chat", "read"})
    assert caller.is_valid()
    file.revoke("alice")
    assert not caller.is_valid()
    file.add("alice", ["chat"])
    assert not caller.is_valid(), "a new token of the name is another one"
