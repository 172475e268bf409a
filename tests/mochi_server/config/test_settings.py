"""Settings: what counts as set, what is refused, and what a child process may see."""

from __future__ import annotations

import pytest

from mochi_server.__main__ import main
from mochi_server.config import (
    MochiServerSettings,
    SettingsError,
    child_environment,
    load_settings,
    tool_environment,
    variable_of,
)


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "value", ["0", "-1", "300", "5m", "1h30m", "-1m", "1.5h", ".5s", "100ms", "10us", "10µs", "1ns"]
)
def test_a_keep_alive_that_ollama_takes_is_accepted(monkeypatch, value):
    monkeypatch.setenv("MOCHI_OLLAMA_KEEP_ALIVE", value)
    assert load_settings().ollama_keep_alive == value


@pytest.mark.parametrize(
    "value", ["s", "forever", "5 m", "m5", "1d", "--1", "5m3", "1.5", "1e3", "٣", "h", "5M", "5m\n"]
)
def test_a_keep_alive_that_ollama_refuses_is_one_line(monkeypatch, capsys, value):
    monkeypatch.setenv("MOCHI_OLLAMA_KEEP_ALIVE", value)
    assert main(["pull", "nothing"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "MOCHI_OLLAMA_KEEP_ALIVE" in line
    assert "a duration such as 5m" in line


@pytest.mark.parametrize("name", ["http://a.example", "a.example:8000", "a.example/", "a b"])
def test_what_is_no_host_name_is_not_allowed_as_one(monkeypatch, capsys, name):
    monkeypatch.setenv("MOCHI_ALLOWED_HOSTS", f"b.example,{name}")
    assert main(["pull", "nothing"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{name!r} is not a host name such as chat.example.org" in line


def test_host_names_that_are_allowed(monkeypatch):
    names = ["*", ".example.org", "my_host", "192.0.2.1", "::1", "[::1]", "exämple.org"]
    monkeypatch.setenv("MOCHI_ALLOWED_HOSTS", ",".join(names))
    assert load_settings().allowed_hosts == names


def test_sessions_in_redis_need_its_address(monkeypatch, capsys):
    monkeypatch.setenv("MOCHI_SESSION_STORAGE", "redis")
    assert main(["pull", "nothing"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "MOCHI_REDIS_URL: must be set" in line
    monkeypatch.setenv("MOCHI_REDIS_URL", "redis://localhost")
    assert load_settings().session_storage == "redis"


def test_sessions_in_a_database_need_its_address_which_no_error_shows(monkeypatch, tmp_path):
    monkeypatch.setenv("MOCHI_SESSION_STORAGE", "database")
    with pytest.raises(SettingsError, match="MOCHI_DATABASE_URL: must be set"):
        load_settings()
    for address, reason in (
        ("secret", "must be an address"),
        ("secret://user:secret@host/name", "unknown"),
        ("postgres://user:se/cret@host/name", "not a valid url"),
        ("sqlite://:memory:", "must name a file"),
    ):
        monkeypatch.setenv("MOCHI_DATABASE_URL", address)
        with pytest.raises(SettingsError, match=reason) as refused:
            load_settings()
        assert "se/cret" not in str(refused.value)
        assert "user:secret" not in str(refused.value)
    monkeypatch.delenv("MOCHI_DATABASE_URL")
    (tmp_path / "address").write_text("postgres://user:secret@host/name\n")
    monkeypatch.setenv("MOCHI_DATABASE_URL_FILE", str(tmp_path / "address"))
    assert load_settings().database_url == "postgres://user:secret@host/name"


@pytest.mark.parametrize(
    "name", ["MOCHI_MAX_BODY_MB", "MOCHI_MAX_OWNER_MB", "MOCHI_TOOL_MEMORY_MB"]
)
def test_a_size_without_end_is_one_line(monkeypatch, capsys, name):
    monkeypatch.setenv(name, "inf")
    assert main(["pull", "nothing"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{name}='inf': input should be a finite number" in line


def test_an_empty_value_is_no_value(monkeypatch):
    defaults = load_settings()
    for field in MochiServerSettings.model_fields:
        monkeypatch.setenv(variable_of(field), "")
    assert load_settings() == defaults


def test_an_empty_value_in_the_file_is_no_value(tmp_path):
    defaults = load_settings()
    lines = [f"{variable_of(field)}=" for field in MochiServerSettings.model_fields]
    (tmp_path / ".env").write_text("\n".join(lines))
    assert load_settings() == defaults


def test_a_secret_file_counts_where_the_variable_is_empty(monkeypatch, tmp_path):
    (tmp_path / "token").write_text("from the file\n")
    monkeypatch.setenv("MOCHI_API_TOKEN", "")
    monkeypatch.setenv("MOCHI_API_TOKEN_FILE", str(tmp_path / "token"))
    token = load_settings().api_token
    assert token.get_secret_value() == "from the file"


def test_a_secret_file_may_be_named_in_the_settings_file(tmp_path):
    (tmp_path / "token").write_text("from the file\n")
    (tmp_path / ".env").write_text(f"MOCHI_API_TOKEN_FILE={tmp_path / 'token'}\n")
    token = load_settings().api_token
    assert token.get_secret_value() == "from the file"


def test_a_misspelt_name_in_the_settings_file_is_told_with_what_was_meant(tmp_path, capsys):
    lines = [
        "MOCHI_API_TOKN=secret",
        "mochi_prot=1",
        "MOCHI_MAX_REQUESTS=1",
        "MOCHI_HOST=::1",
        "OTHER=1",
    ]
    (tmp_path / ".env").write_text("\n".join(lines))
    assert main(["init", str(tmp_path / "data")]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "mochi-server: warning: MOCHI_API_TOKN is not a setting (did you mean MOCHI_API_TOKEN?)",
        "mochi-server: warning: MOCHI_MAX_REQUESTS is not a setting (see --help)",
        "mochi-server: warning: MOCHI_PROT is not a setting (did you mean MOCHI_PORT?)",
    ]


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("192.168.1.20", "http://192.168.1.20:11434"),
        ("0.0.0.0:11435", "http://0.0.0.0:11435"),
        (":11435", "http://127.0.0.1:11435"),
        ("", "http://localhost:11434"),
    ],
)
def test_the_variable_of_ollama_counts_where_ours_is_unset(monkeypatch, tmp_path, value, address):
    monkeypatch.setenv("OLLAMA_HOST", value)
    assert load_settings().ollama_host == address
    (tmp_path / ".env").write_text("MOCHI_OLLAMA_HOST=http://ours:1\n")
    assert load_settings().ollama_host == "http://ours:1"
    assert load_settings(ollama_host="http://given:1").ollama_host == "http://given:1"


def test_a_settings_file_that_is_no_text_is_one_line(tmp_path, capsys):
    (tmp_path / ".env").write_bytes(b"MOCHI_LOG_LEVEL=\xff\xfeinfo\n")
    assert main([]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("save it as UTF-8.")


def test_a_settings_file_that_cannot_be_read_is_one_line(tmp_path, capsys):
    (tmp_path / ".env").symlink_to(tmp_path / ("x" * 300))
    assert main([]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert ".env" in line
    assert "File name too long" in line


def test_a_secret_file_that_is_no_text_is_one_line(monkeypatch, tmp_path, capsys):
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    monkeypatch.setenv("MOCHI_API_TOKEN_FILE", str(tmp_path / "token"))
    assert main([]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "MOCHI_API_TOKEN_FILE" in line
    assert "is not UTF-8 text" in line


def test_an_error_shows_what_is_no_secret_whatever_its_name(monkeypatch):
    monkeypatch.setenv("MOCHI_MAX_OUTPUT_TOKENS", "many")
    with pytest.raises(SettingsError, match=r"^MOCHI_MAX_OUTPUT_TOKENS='many': "):
        load_settings()


SECRETS = (
    *map(variable_of, MochiServerSettings.secret_fields()),
    "OPENAI_API_KEY",
    "MOCHI_API_TOKEN_FILE",
    "MOCHI_REDIS_URL",
    "MOCHI_REDIS_URL_FILE",
    "MOCHI_DATABASE_URL_FILE",
    "database_url",
    "MOCHI_OLLAMA_HOST",
    "OLLAMA_HOST",
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "github_token",
    "Client_Secret",
    "PGPASSWORD",
    "DB_PASSWORD_FILE",
    "my_api_key_file",
    "TOKEN",
)


@pytest.mark.parametrize("name", SECRETS)
def test_a_child_gets_no_secrets(monkeypatch, name):
    monkeypatch.setenv(name, "s3cret")
    assert name not in child_environment()


def test_a_child_gets_no_address_with_a_password(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://me:s3cret@proxy:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    found = child_environment(OMP_WAIT_POLICY="passive")
    assert "HTTPS_PROXY" not in found
    assert found["HTTP_PROXY"] == "http://proxy:3128"
    assert found["OMP_WAIT_POLICY"] == "passive"


@pytest.mark.parametrize("name", ["PATH", "LD_LIBRARY_PATH", "TOKENIZERS_PARALLELISM", "KEYMAP"])
def test_a_child_gets_what_is_no_secret(monkeypatch, name):
    monkeypatch.setenv(name, "plain")
    assert child_environment()[name] == "plain"


@pytest.mark.parametrize(
    "name", ["MOCHI_API_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY_FILE", "MOCHI_REDIS_URL"]
)
def test_tools_do_not_get_the_secrets_of_the_server(monkeypatch, name):
    monkeypatch.setenv(name, "s3cret")
    assert name not in tool_environment()


@pytest.mark.parametrize("name", ["GITHUB_TOKEN", "AWS_PROFILE", "DATABASE_URL", "MOCHI_DATA_DIR"])
def test_tools_get_what_is_named_for_them_and_nothing_else(monkeypatch, name):
    monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("PATH", "/bin")
    assert name not in tool_environment()
    assert tool_environment()["PATH"] == "/bin"
    assert tool_environment([name])[name] == "mine"
