"""Reads settings from the environment, and makes environments for the processes that we start."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from pydantic import SecretStr, ValidationError

from ..core.files import NotUTF8, text_of
from ..core.problems import problem_text
from .fields import PREFIX, variable_of
from .settings import MochiServerSettings

_SECRETS = {
    name: field
    for field in MochiServerSettings.secret_fields()
    for name in (variable_of(field), field.upper())
}
"""Variables of secret settings, by type."""
_SECRET = re.compile(
    r"((^|_)(KEY|TOKEN)|SECRET|PASSWORD|PASSWD|^MOCHI_REDIS_URL|^(MOCHI_)?OLLAMA_HOST)(_FILE)?$",
    re.IGNORECASE,
)
"""Names of other programs' secrets, which have no type. An address of Redis may have its password
among its options, one of Ollama a login without ``://`` before it, where ``_WITH_LOGIN`` does not
see them."""
_WITH_LOGIN = re.compile(r"://[^/]*@")

OLLAMA_HOST = "OLLAMA_HOST"
"""Variable of Ollama's own programs, read if ``MOCHI_OLLAMA_HOST`` is unset."""


class SettingsError(Exception):
    """Settings have invalid values; the text has one line for each."""


def _secret_files(environ: Mapping[str, str]) -> dict[str, str]:
    """Read the values of ``NAME_FILE`` variables, for keys that are mounted as files."""
    values: dict[str, str] = {}
    for name, field in _SECRETS.items():
        path = environ.get(f"{name}_FILE")
        if not path or environ.get(name) or field in values:
            continue
        try:
            values[field] = text_of(Path(path).read_bytes()).strip()
        except OSError as error:
            raise SettingsError(f"{name}_FILE={path}: {error.strerror}") from error
        except NotUTF8 as error:
            raise SettingsError(f"{name}_FILE={path}: {error}.") from error
    return values


def secret_files() -> list[Path]:
    """Return the files that ``NAME_FILE`` variables name, for those who must not show them."""
    environ = {**_variables_of_file(), **os.environ}
    return [Path(path) for name in _SECRETS if (path := environ.get(f"{name}_FILE"))]


def load_settings(**values: Any) -> MochiServerSettings:  # noqa: ANN401 - checked by pydantic
    """Read the settings from the environment; ``values`` take precedence.

    Raises:
        SettingsError: Values are invalid, with one line for each variable; or a file with
            settings cannot be read.
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
    """Read the variables of ``.env``, their names in capitals."""
    return {name.upper(): value for name, value in _own_file().items()}


def _own_file() -> dict[str, str]:
    path = Path(".env")
    return variables_of_file(path) if path.is_file() else {}


def _settings_of(values: Mapping[str, Any]) -> MochiServerSettings:
    try:
        secrets = _secret_files({**_variables_of_file(), **os.environ})
        return MochiServerSettings(**{**secrets, **values})
    except NotUTF8 as error:
        raise SettingsError(f"{Path('.env').absolute()}: {error}.") from error
    except OSError as error:
        raise SettingsError(f"{Path('.env').absolute()}: {error.strerror}") from error
    except ValidationError as error:
        lines = [_explain(problem) for problem in error.errors()]
        raise SettingsError("\n".join(lines)) from error


def _explain(problem: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    """Return a line such as ``MOCHI_PORT=0: input should be greater than 0``."""
    name = str(problem["loc"][0]) if problem["loc"] else "settings"
    variable = name if name.isupper() else variable_of(name)
    text = problem_text(problem)
    value = os.environ.get(variable)
    if value and "@" in value and name.endswith(("_host", "_url")):
        value = f"…@{value.rpartition('@')[2]}"
    shown = f"={value!r}" if value is not None and variable not in _SECRETS else ""
    return f"{variable}{shown}: {text[:1].lower()}{text[1:]}"


def text_of_value(value: object) -> str:
    """Return the value of a setting as the text of its variable."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)


def export(values: Mapping[str, object]) -> None:
    """Put settings into this process's environment, for the application and the workers."""
    for field, value in values.items():
        if value is None:
            os.environ.pop(variable_of(field), None)
        else:
            os.environ[variable_of(field)] = text_of_value(value)


def export_default(variable: str, value: str) -> None:
    """Put a variable into this process's environment unless it is there."""
    os.environ.setdefault(variable, value)


def child_environment(**values: str) -> dict[str, str]:
    """Return this process's environment without secrets, and with some more values."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.upper().removesuffix("_FILE") not in _SECRETS
        and not _SECRET.search(name)
        and not _WITH_LOGIN.search(value)
    } | values


def installer_environment(**values: str) -> dict[str, str]:
    """Return this process's environment with some more values.

    It has secrets: the address of a package index may need a login.
    """
    return {**os.environ, **values}


_WORKERS = re.compile(r"(?:--workers|-w)(?:=|\s+|(?<=-w))(\d+)")


def server_processes(settings: MochiServerSettings) -> int:
    """Return how many processes serve: by the setting, or by the command line of an ASGI server."""
    has_parent = multiprocessing.parent_process() is not None
    if settings.workers > 1 or not (has_parent or Path(sys.argv[0]).name == "gunicorn"):
        return settings.workers
    if option := _WORKERS.search(" ".join(sys.argv[1:])):
        return int(option[1])
    counts = (os.environ.get(name, "") for name in ("UVICORN_WORKERS", "WEB_CONCURRENCY"))
    return next((int(count) for count in counts if count.isdigit()), 1)


_TOOL_VARIABLES = frozenset(
    {
        *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
        # What the interpreter needs, wherever it is installed.
        *("PYTHONHOME", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
        *("VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
        # For a suite that measures the coverage of the processes that it starts.
        *("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"),
    }
)


def tool_environment(names: Collection[str] = ()) -> dict[str, str]:
    """Return a small environment for the user's code, with these additional variables."""
    names = _TOOL_VARIABLES.union(names)
    return {name: value for name, value in os.environ.items() if name in names}


def environment_variables() -> dict[str, str]:
    """Return this process's variables, with those of ``.env`` that it lacks."""
    return _own_file() | dict(os.environ)


def variables_of_file(path: Path) -> dict[str, str]:
    """Return the variables of a file in the notation of ``.env``.

    Raises:
        OSError: It cannot be read.
        NotUTF8: It is not UTF-8 text.
    """
    stream = StringIO(text_of(path.read_bytes()))
    values = dotenv_values(stream=stream, interpolate=False)
    return {name: value for name, value in values.items() if value is not None}


def environment_without_settings() -> dict[str, str]:
    """Return this process's environment without the variables that settings are read from."""
    unprefixed = {*MochiServerSettings.unprefixed_variables(), OLLAMA_HOST}
    return {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith(PREFIX)
        and name.upper().removesuffix("_FILE") not in unprefixed
    }


def unknown_variables() -> dict[str, str | None]:
    """Return the ``MOCHI_`` variables of the environment and ``.env`` that no setting reads.

    Each with the variable of the most similar name, if there is one.
    """
    known = {variable_of(field) for field in MochiServerSettings.model_fields}
    known |= {f"{variable_of(field)}_FILE" for field in MochiServerSettings.secret_fields()}
    unknown = sorted({*os.environ, *_variables_of_file()} - known)
    return {name: _similar(name, known) for name in unknown if name.startswith(PREFIX)}


def _similar(name: str, variables: Collection[str]) -> str | None:
    """Return which of the variables was probably meant; all begin with the same prefix."""
    names = [variable.removeprefix(PREFIX) for variable in variables]
    similar = get_close_matches(name.removeprefix(PREFIX), names, n=1, cutoff=0.75)
    return f"{PREFIX}{similar[0]}" if similar else None


METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Variable in which ``prometheus_client`` looks for the folder that several processes share."""

_TRACE_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def metrics_folder() -> Path | None:
    """Return where the processes of this server keep the numbers of their metrics, if they do."""
    folder = os.environ.get(METRICS_FOLDER)
    return Path(folder) if folder else None


def traces_are_wanted() -> bool:
    """Return whether the variables of OpenTelemetry name a collector, and do not switch it off."""
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    is_off |= os.environ.get("OTEL_TRACES_EXPORTER", "").lower() == "none"
    return not is_off and any(os.environ.get(name) for name in _TRACE_ENDPOINTS)


def has_desktop() -> bool:
    """Return whether a browser that is opened here is one that the user sees."""
    if any(os.environ.get(name) for name in ("CI", "SSH_CONNECTION")):
        return False
    if sys.platform != "linux":
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
