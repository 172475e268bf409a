"""The reference pages have everything that the code has, and nothing else."""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from django.core.management import get_commands, load_command_class
from prometheus_client.metrics import MetricWrapperBase

from chat.wires.socket.endpoint import SocketEndpoint
from mochi_project.api import api
from mochi_project.asgi import add_connection_gauges
from mochi_project.http.rights import ROUTES
from mochi_server import __main__ as command
from mochi_server.config import MochiServerSettings, load_settings, variable_of
from mochi_server.core.caller import RESERVED_NAMES, RIGHTS
from mochi_server.errors import MochiError
from mochi_server.observability.metrics import Metrics
from mochi_server.protocol import events
from mochi_server.protocol.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mochi_server.providers.builtin.catalogue import CATALOGUE
from mochi_server.runtime import Runtime
from mochi_server.sessions.types import LABELS, ContextWindowConfig, SessionMetadata
from tests.docs.pages import (
    PACKAGES,
    REFERENCE,
    ROOT,
    blocks,
    code,
    codes,
    headings,
    prose,
    rows,
    section,
    sources,
)

SETTINGS = REFERENCE / "settings.md"
ERRORS = REFERENCE / "errors.md"
EVENTS = REFERENCE / "events.md"
API = REFERENCE / "http-api.md"
FILE = REFERENCE / "session-file.md"
CHECKS = REFERENCE / "checks.md"
COMMANDS = REFERENCE / "commands.md"
METRICS = REFERENCE / "metrics.md"

EVERYWHERE = {
    "UNAUTHORIZED",
    "FORBIDDEN",
    "ORIGIN_NOT_ALLOWED",
    "HOST_NOT_ALLOWED",
    "STORAGE_UNAVAILABLE",
    "INTERNAL_ERROR",
}
WITH_BODY = {
    *("INVALID_JSON", "VALIDATION_ERROR", "PAYLOAD_TOO_LARGE"),
    *("REQUEST_TIMEOUT", "SERVER_BUSY"),
}


# Settings


def documented_settings() -> dict[str, list[str]]:
    found = [row for row in rows(prose(SETTINGS)) if len(row) == 4]
    return {code(row[0]): row for row in found}


def written(default: Any) -> str:
    if default is None or default == []:
        return "unset"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`"


def test_every_setting_is_documented_and_no_other() -> None:
    known = [variable_of(field) for field in MochiServerSettings.model_fields]
    assert sorted(documented_settings()) == sorted(known)


def test_every_documented_default_is_the_one_of_the_code() -> None:
    fields = MochiServerSettings.model_fields.items()
    assert {name: row[1] for name, row in documented_settings().items()} == {
        variable_of(field): written(info.default) for field, info in fields
    }


def test_every_other_name_of_a_setting_is_documented() -> None:
    for field, info in MochiServerSettings.model_fields.items():
        bare = [str(name) for name in getattr(info.validation_alias, "choices", [])[1:]]
        text = documented_settings()[variable_of(field)][3]
        assert set(bare) <= codes(text), field


def test_every_setting_is_read_by_some_part() -> None:
    config = Path("mochi_server/config")
    text = "\n".join(source for path, source in sources().items() if path.parent != config)
    own = sources()[config / "settings.py"]
    unread = {
        variable_of(field)
        for field in MochiServerSettings.model_fields
        if not re.search(rf"\.{field}\b", text) and f"self.{field}" not in own
    }
    assert unread == set()


# Errors


def classes(root: type[MochiError] = MochiError) -> Iterator[type[MochiError]]:
    for child in root.__subclasses__():
        if child.__module__ == "mochi_server.errors":
            yield child
            yield from classes(child)


def test_every_error_is_documented_with_its_status_and_no_other() -> None:
    table = rows(section(ERRORS, "## The codes"))
    found = sorted((code(row[0]), int(row[1]), code(row[2])) for row in table)
    assert found == sorted((kind.code, kind.status, kind.__name__) for kind in classes())


def test_the_tree_of_errors_has_every_class_below_its_parent() -> None:
    tree = next(block.text for block in blocks(ERRORS) if block.text.startswith("MochiError"))
    stack: list[tuple[int, str]] = []
    drawn: set[tuple[str, str]] = set()
    for line in tree.splitlines():
        names = re.findall(r"[A-Z]\w+", line)
        depth = line.index(names[0])
        while stack and stack[-1][0] >= depth:
            stack.pop()
        drawn |= {(name, stack[-1][1]) for name in names if stack}
        stack.append((depth, names[0]))
    assert drawn == {(kind.__name__, kind.__bases__[0].__name__) for kind in classes()}


def test_codes_within_a_turn_are_those_of_the_engine() -> None:
    table = rows(section(ERRORS, "## Within a turn"))
    engine = "\n".join(
        text
        for path, text in sources().items()
        if path.parts[:2] == ("mochi_server", "chat") or path.parts[1:] == ("tools", "execution.py")
    )
    used = set(re.findall(r"\b([A-Z]\w+)\.code\b", engine))
    assert {code(row[0]) for row in table} == {
        kind.code for kind in classes() if kind.__name__ in used
    }


# Events

OWNER = {"agent_name", "agent_call_id"}


def samples() -> Iterator[events.Event]:
    """An event of each name with every field, none of which has its default."""
    for kind in get_args(events.Event):
        values: dict[str, Any] = {field.name: "x" for field in fields(kind) if field.init}
        yield kind(**values)
        if kind in {events.ToolCallStarted, events.ToolResultReady}:  # it has two names
            yield kind(**{name: value for name, value in values.items() if name not in OWNER})


SAMPLES = tuple(samples())


def test_every_event_is_documented_and_no_other() -> None:
    names = {sample.type for sample in SAMPLES}
    assert len(names) == len(SAMPLES)
    assert {name for name in headings(EVENTS, 2) if name.islower()} == names


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.type)
def test_every_field_of_an_event_is_documented_and_no_other(sample: events.Event) -> None:
    table = section(EVENTS, f"## {sample.type}").split("`context_window`:\n")[0]
    assert [code(row[0]) for row in rows(table)] == list(sample.payload())


# Routes


@cache
def operations() -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in api.get_openapi_schema()["paths"].items()
        for method, operation in methods.items()
    }


def test_every_route_is_documented_and_no_other() -> None:
    assert sorted(headings(API, 3)) == sorted(operations())


@pytest.mark.parametrize("route", sorted(operations()))
def test_every_error_of_a_route_is_documented(route: str) -> None:
    operation = operations()[route]
    examples = [
        answer["content"]["application/json"].get("examples", {})
        for status, answer in operation["responses"].items()
        if int(status) >= 400
    ]
    known = {name for group in examples for name in group} - EVERYWHERE
    if "requestBody" in operation:
        known -= WITH_BODY
    _, _, listed = section(API, f"### {route}").partition("Errors: ")
    assert codes(listed.split("\n\n")[0]) - WITH_BODY == known - WITH_BODY


# The session file


def test_every_key_of_the_metadata_is_documented_in_the_order_of_the_file() -> None:
    text, _, window = section(FILE, "## Metadata").partition("\n`context_window_config`:\n")
    assert [code(row[0]) for row in rows(text)] == list(SessionMetadata.model_fields)
    assert [code(row[0]) for row in rows(window)] == list(ContextWindowConfig.model_fields)


def test_every_label_is_documented_in_the_order_of_answers() -> None:
    assert [code(row[0]) for row in rows(section(FILE, "## Title, tags, flags"))] == [*LABELS]


def test_every_key_of_a_message_is_documented() -> None:
    found: dict[str, set[str]] = {"user": set()}
    for role, key, *_ in rows(section(FILE, "## Messages")):
        found.setdefault(code(role), set()).add(code(key))
    common = {"role", "content", "message_id", "timestamp"}
    kinds = (UserMessage, SystemMessage, AssistantMessage, ToolMessage)
    assert found == {
        kind.model_fields["role"].default: set(kind.model_fields) - common for kind in kinds
    }


# Metrics


def known_metrics() -> dict[str, tuple[str, list[str]]]:
    """The type and the labels of each, by its name as Prometheus writes it."""
    runtime = Runtime(load_settings(data_dir=ROOT, session_storage="memory"))
    metrics = Metrics(runs=runtime.runs, confirmations=runtime.confirmations, version="1")
    add_connection_gauges(metrics, SocketEndpoint())
    found = {}
    for collector in {*metrics._registry._collector_to_names}:
        assert isinstance(collector, MetricWrapperBase)
        [metric] = collector.describe()
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        found[name] = (metric.type, [*collector._labelnames])
    return found


def test_every_metric_is_documented_with_its_type_and_labels_and_no_other() -> None:
    table = [row for row in rows(prose(METRICS)) if len(row) == 4]
    documented = {
        code(name): (kind, re.findall(r"`([^`]+)`", labels)) for name, kind, labels, _ in table
    }
    assert documented == known_metrics()


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    dashboard = json.loads((ROOT / "examples" / "grafana" / "mochi-server.json").read_text("utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {tuple(panel["gridPos"][key] for key in "xy") for panel in panels}
    assert len(places) == len(panels)
    known = known_metrics()
    shown = set()
    for target in (target for panel in panels for target in panel["targets"]):
        query = target["expr"]
        assert query.count("(") == query.count(")"), query
        for name, labels in re.findall(r"\b((?:mochi|gen_ai|process)_\w+)\{([^}]*)\}", query):
            metric = name if name in known else re.sub(r"_(bucket|sum|count)$", "", name)
            assert metric in known, query
            used = {*re.findall(r"(\w+)(?==)", labels)} | {
                label
                for group in re.findall(r"by \(([^)]*)\)", query)
                for label in group.split(", ")
            }
            assert used <= {*known[metric][1], "instance", "le"}, query
            shown.add(metric)
    assert {*known} - shown == {
        *("mochi_runs_started_total", "mochi_processes", "mochi_build_info"),
        *("process_virtual_memory_bytes", "process_start_time_seconds"),
    }


# Checks and commands


def test_every_system_check_is_documented_with_its_level_and_no_other() -> None:
    pattern = re.compile(r"\b(Error|Warning)\([^\n]*\bid=\"([^\"]+)\"")
    found = {
        (check, level.lower())
        for path, text in sources().items()
        if path.name == "checks.py"
        for level, check in pattern.findall(text)
    }
    assert {(code(row[0]), row[1]) for row in rows(prose(CHECKS))} == found


def options(parser: ArgumentParser) -> set[str]:
    return {name for action in parser._actions for name in action.option_strings}


def test_every_option_of_the_command_is_documented_and_no_other() -> None:
    synopsis = blocks(COMMANDS)[0].text
    shown = set(re.findall(r"--[a-z-]+", synopsis))
    assert shown | {"-h", "--help", "--version"} == options(command._parser())


def test_every_model_that_can_be_pulled_is_documented_and_no_other() -> None:
    table = rows(section(COMMANDS, "## mochi-server pull"))
    found = {code(row[0]): row[1] for row in table}
    assert found == {name: f"{model.size / 1e6:.0f} MB" for name, model in CATALOGUE.items()}


def test_every_management_command_is_documented_and_no_other() -> None:
    ours = {
        path.stem
        for package in PACKAGES
        for path in (ROOT / package).glob("management/commands/*.py")
        if path.stem != "__init__"
    }
    table = rows(section(COMMANDS, "## manage.py"))
    assert {code(row[0]).split()[2] for row in table} == ours | {"check"}


OF_DJANGO = {"--version", "--verbosity", "--settings", "--pythonpath", "--traceback"} | {
    "--no-color", "--force-color", "--skip-checks", "--help", "-v", "-h"
}  # fmt: skip


def parser_of(command_name: str) -> ArgumentParser:
    app = get_commands()[command_name]
    return load_command_class(app, command_name).create_parser("", command_name)


@pytest.mark.parametrize(
    "command_name", ["migrate_sessions", "prune_sessions", "summarize_sessions"]
)
def test_every_option_of_a_command_of_sessions_is_documented(command_name: str) -> None:
    found = section(COMMANDS, "## manage.py")
    [line] = [line for line in found.splitlines() if f"manage.py {command_name} " in line]
    assert {*re.findall(r"--[a-z-]+", line)} == options(parser_of(command_name)) - OF_DJANGO


def test_every_action_on_sessions_is_documented_with_its_options() -> None:
    synopsis = next(block.text for block in blocks(COMMANDS) if "sessions list" in block.text)
    documented: dict[str, set[str]] = {}
    for line in synopsis.splitlines():
        name = line.split()[2]
        documented.setdefault(name, set()).update(re.findall(r"--[a-z-]+", line))
    actions = next(
        action for action in parser_of("sessions")._actions if isinstance(action.choices, dict)
    )
    parsers: dict[str, ArgumentParser] = actions.choices  # type: ignore[assignment]
    assert documented == {
        name: options(parser) - {"-h", "--help"} for name, parser in parsers.items()
    }


def test_every_target_of_make_is_documented_and_no_other() -> None:
    phony = re.search(r"(?m)^\.PHONY: (.+)$", (ROOT / "Makefile").read_text("utf-8"))
    assert phony is not None
    table = rows(section(COMMANDS, "## make"))
    assert {code(row[0]).removeprefix("make ") for row in table} == {*phony[1].split()} - {"help"}


# Tokens


def test_every_route_is_documented_with_its_right_and_its_name_in_the_audit_log() -> None:
    table = rows(section(REFERENCE / "tokens.md", "### Routes"))
    documented = {
        code(row[0]).replace(" /", " "): (None if row[1] == "none" else code(row[1]), row[2])
        for row in table
    }
    expected = {name: (access.right, access.action or "") for name, access in ROUTES.items()}
    assert documented == expected


def test_every_right_is_documented_and_no_other() -> None:
    table = rows(section(REFERENCE / "tokens.md", "## The rights").partition("###")[0])
    assert [code(row[0]) for row in table] == [*RIGHTS]


def test_every_name_that_no_token_may_have_is_documented() -> None:
    table = rows(section(REFERENCE / "tokens.md", "## The file"))
    (row,) = [row for row in table if code(row[0]) == "name"]
    assert codes(row[1]) - {"._@-"} == RESERVED_NAMES


def test_every_action_on_tokens_is_documented_with_its_options() -> None:
    synopsis = next(block.text for block in blocks(COMMANDS) if "token add" in block.text)
    documented = {
        line.split()[2]: {*re.findall(r"--[a-z-]+", line)} for line in synopsis.splitlines()
    }
    actions = next(
        action for action in parser_of("token")._actions if isinstance(action.choices, dict)
    )
    parsers: dict[str, ArgumentParser] = actions.choices  # type: ignore[assignment]
    assert documented == {
        name: options(parser) - {"-h", "--help"} for name, parser in parsers.items()
    }
