"""Settings from the environment, and an environment for the processes that we start."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from pydantic import SecretStr, ValidationError

from .settings import PREFIX, MochiServerSettings, variable_of

_SECRET = re.compile(
    r"((^|_)(KEY|TOKEN)|SECRET|PASSWORD|PASSWD|^MOCHI_REDIS_URL|^(MOCHI_)?OLLAMA_HOST)(_FILE)?$",
    re.IGNORECASE,
)
_WITH_LOGIN = re.compile(r"://[^/]*@")


_SECRET_FIELDS = ("api_token", "openai_api_key", "anthropic_api_key", "gemini_api_key")
"""Settings whose value may lie in a file that a variable names."""

OLLAMA_HOST = "OLLAMA_HOST"
"""Variable of Ollama's own programs, read where ours is unset."""


class SettingsError(Exception):
    """A setting has a value that is not allowed; the text is one line for each."""


def _secret_files(environ: Mapping[str, str]) -> dict[str, str]:
    """Values of ``NAME_FILE`` variables, for keys that are mounted as files.

    Raises:
        SettingsError: a named file cannot be read, or is no text.
    """
    found: dict[str, str] = {}
    for field in _SECRET_FIELDS:
        for name in (variable_of(field), field.upper()):
            path = environ.get(f"{name}_FILE")
            if not path or environ.get(name):
                continue
            try:
                found[field] = Path(path).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise SettingsError(f"{name}_FILE={path}: {error.strerror}") from error
            except UnicodeDecodeError as error:
                raise SettingsError(f"{name}_FILE={path} is not UTF-8 text.") from error
            break
    return found


def load_settings(**values: Any) -> MochiServerSettings:  # noqa: ANN401 - checked by pydantic
    """The settings of the environment, with the given values before everything else.

    Raises:
        SettingsError: some value is not allowed, one line names each variable; or a file that
            holds settings cannot be read.
    """
    settings = _settings_of(values)
    ollama_host = os.environ.get(OLLAMA_HOST)
    if ollama_host and "ollama_host" not in settings.model_fields_set:
        try:
            return _settings_of({**values, "ollama_host": ollama_host})
        except SettingsError as error:
            text = str(error).replace(variable_of("ollama_host"), OLLAMA_HOST)
            raise SettingsError(text) from error
    return settings


def _variables_of_file() -> dict[str, str]:
    """The variables of ``.env``, in capitals.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is no text.
    """
    values = dotenv_values(".env", interpolate=False)
    return {name.upper(): value for name, value in values.items() if value is not None}


def _settings_of(values: Mapping[str, Any]) -> MochiServerSettings:
    """The settings of our own variables, with the given values before everything else."""
    try:
        given = {**_secret_files({**_variables_of_file(), **os.environ}), **values}
        return MochiServerSettings(**given)
    except UnicodeDecodeError as error:
        raise SettingsError(f"{Path('.env').absolute()} is not UTF-8 text.") from error
    except OSError as error:
        raise SettingsError(f"{Path('.env').absolute()}: {error.strerror}") from error
    except ValidationError as error:
        lines = [_explain(problem) for problem in error.errors()]
        raise SettingsError("\n".join(lines)) from error


def _explain(problem: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    """``MOCHI_PORT: input should be less than or equal to 65535``."""
    name = str(problem["loc"][0]) if problem["loc"] else "settings"
    variable = name if name.isupper() else variable_of(name)
    text = str(problem["msg"]).removeprefix("Value error, ")
    given = os.environ.get(variable)
    if given and "@" in given and name.endswith(("_host", "_url")):
        given = f"…@{given.rpartition('@')[2]}"
    shown = f"={given!r}" if given is not None and "key" not in name and "token" not in name else ""
    return f"{variable}{shown}: {text[:1].lower()}{text[1:]}"


def _as_text(value: object) -> str:
    """A value as its variable would hold it."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)


def export(values: Mapping[str, object]) -> None:
    """Put values into this process's environment, for the Django settings and the workers."""
    for field, value in values.items():
        if value is None:
            os.environ.pop(variable_of(field), None)
        else:
            os.environ[variable_of(field)] = _as_text(value)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mochi_project.settings")


def child_environment(**values: str) -> dict[str, str]:
    """This process's environment with some values more, without keys, tokens and passwords."""
    return {
        name: value
        for name, value in os.environ.items()
        if not _SECRET.search(name) and not _WITH_LOGIN.search(value)
    } | values


_WORKERS = re.compile(r"(?:--workers|-w)(?:=|\s+|(?<=-w))(\d+)")


def server_processes(settings: MochiServerSettings) -> int:
    """How many processes serve, as far as one of them can know.

    By the setting; else, in a process that another server's command has started, by the words of
    that command. Other ways of starting several are not noticed.
    """
    started = multiprocessing.parent_process() is not None
    if settings.workers > 1 or not (started or Path(sys.argv[0]).name == "gunicorn"):
        return settings.workers
    if found := _WORKERS.search(" ".join(sys.argv[1:])):
        return int(found[1])
    counts = (os.environ.get(name, "") for name in ("UVICORN_WORKERS", "WEB_CONCURRENCY"))
    return next((int(count) for count in counts if count.isdigit()), 1)


_TOOL_VARIABLES = frozenset(
    {
        *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
        # What the interpreter itself needs, wherever it is installed.
        *("PYTHONHOME", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
        *("VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
        # Where a suite measures the coverage of what it starts.
        *("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"),
    }
)


def tool_environment(names: Collection[str] = ()) -> dict[str, str]:
    """Return a small environment for the user's own code.

    Args:
        names: Variables that it gets as well.
    """
    names = _TOOL_VARIABLES.union(names)
    return {name: value for name, value in os.environ.items() if name in names}


@contextmanager
def with_tool_environment() -> Iterator[None]:
    """Leave this process the variables of tools alone, for a process that it starts meanwhile."""
    variables = dict(os.environ)
    try:
        for name in variables.keys() - tool_environment().keys():
            del os.environ[name]
        yield
    finally:
        os.environ.update(variables)


def environment_without_own_secrets() -> dict[str, str]:
    """Return this process's environment without the keys and passwords of the settings."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _OWN_SECRETS
        and not (name.endswith("_BASE_URL") and _WITH_LOGIN.search(value))
    }


def _own_secrets() -> frozenset[str]:
    """Variables with keys, tokens and passwords that the server's settings read."""
    fields = MochiServerSettings.model_fields
    secret = [name for name, field in fields.items() if "SecretStr" in str(field.annotation)]
    names = {variable_of(name) for name in [*secret, "redis_url", "ollama_host"]}
    names |= {name.upper() for name in secret if fields[name].validation_alias is not None}
    return frozenset(names | {f"{name}_FILE" for name in names} | {OLLAMA_HOST})


_OWN_SECRETS = _own_secrets()


@dataclass(frozen=True)
class UnknownVariable:
    """A name that no setting has: most likely misspelt."""

    name: str
    meant: str | None
    """The setting that was most likely meant."""


def unknown_variables() -> list[UnknownVariable]:
    """``MOCHI_`` variables of the environment and of ``.env`` that no setting reads."""
    known = {variable_of(field) for field in MochiServerSettings.model_fields}
    known |= {f"{variable_of(field)}_FILE" for field in _SECRET_FIELDS}
    names = {*os.environ, *_variables_of_file()}
    return [
        UnknownVariable(name, next(iter(get_close_matches(name, known, n=1, cutoff=0.8)), None))
        for name in sorted(names - known)
        if name.startswith(PREFIX)
    ]
