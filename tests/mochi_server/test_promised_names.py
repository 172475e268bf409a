"""What users of the library may import from where, and that it does not know its Django face."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import signature

import pytest

import mochi_server
from mochi_project import APPS
from mochi_server.sessions import SessionManager
from mochi_server.sessions.types import SessionCreationOptions
from tests.docs.pages import ROOT

DOTTED = re.compile(r"\bmochi_server(?:\.[a-z_]+)+\.[A-Z][A-Za-z]+")

NAMES = {
    "mochi_server": [
        "create_app",
        "errors",
        "events",
        "MochiServerSettings",
        "Provider",
        "Runtime",
        "SessionStorage",
        "Tool",
    ],
    "mochi_server.__main__": [],
    "mochi_server.agents": ["AgentDiscoveryService", "AgentExecutionService"],
    "mochi_server.agents.config": ["AgentSettings"],
    "mochi_server.agents.discovery": ["AgentDefinition", "AgentDiscoveryService"],
    "mochi_server.agents.execution": ["AgentExecutionService"],
    "mochi_server.agents.prompt_loader": ["PromptLoader"],
    "mochi_server.agents.tool_factory": [],
    "mochi_server.app": ["create_app"],
    "mochi_server.config": ["MochiServerSettings", "load_settings"],
    "mochi_server.constants": [],
    "mochi_server.errors": ["MochiError"],
    "mochi_server.events": ["ConfirmationRequired", "ContentDelta", "Done", "Event"],
    "mochi_server.ollama": ["AsyncInstructorOllamaClient", "AsyncOllamaClient", "OllamaClient"],
    "mochi_server.ollama.async_client": ["AsyncInstructorOllamaClient", "AsyncOllamaClient"],
    "mochi_server.ollama.client": ["OllamaClient"],
    "mochi_server.ollama.types": ["ChatMessage", "ModelInfo"],
    "mochi_server.protocol.events": ["ContentDelta"],
    "mochi_server.providers.base": ["Provider"],
    "mochi_server.services.context_window": ["DynamicContextWindowService"],
    "mochi_server.services.summarization": ["SummarizationService"],
    "mochi_server.services.summary_model": ["SummaryModelManager"],
    "mochi_server.services.system_prompts": ["SystemPromptService"],
    "mochi_server.sessions": [
        "AssistantMessage",
        "SessionManager",
        "SystemMessage",
        "ToolMessage",
        "ToolSettings",
        "UserMessage",
    ],
    "mochi_server.sessions.manager": ["SessionManager"],
    "mochi_server.sessions.session": ["ChatSession", "Message", "SessionMetadata"],
    "mochi_server.sessions.storage.base": ["SessionStorage"],
    "mochi_server.sessions.types": ["SessionCreationOptions"],
    "mochi_server.testing": ["running_server"],
    "mochi_server.tools": ["ToolDiscoveryService", "ToolExecutionService", "ToolSchemaService"],
    "mochi_server.tools.config": ["ToolExecutionPolicy", "ToolSettings"],
    "mochi_server.tools.discovery": ["ToolDiscoveryService"],
    "mochi_server.tools.execution": ["ToolExecutionResult", "ToolExecutionService"],
    "mochi_server.tools.schema": ["ToolSchemaService"],
}


@pytest.mark.parametrize("module", NAMES)
def test_promised_names_are_there(module):
    found = import_module(module)
    assert found.__doc__
    assert [name for name in NAMES[module] if not getattr(found, name).__doc__] == []


def test_everything_that_the_package_exports_is_there():
    assert dir(mochi_server) == sorted(mochi_server.__all__)
    assert all(hasattr(mochi_server, name) for name in mochi_server.__all__)


def test_a_name_that_the_package_does_not_export_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Runtimes'"):
        mochi_server.Runtimes  # noqa: B018


def test_the_options_of_a_new_session_are_those_of_the_manager():
    parameters = signature(SessionManager.create).parameters
    assert set(SessionCreationOptions.__annotations__) < set(parameters)


def names_in_pages() -> list[str]:
    """Every ``mochi_server.….Class`` that the documentation names."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    texts = [page.read_text("utf-8") for page in pages if page.parent.name != "decisions"]
    return sorted({name for text in texts for name in DOTTED.findall(text)})


@pytest.mark.parametrize("name", names_in_pages())
def test_a_class_that_a_page_names_can_be_imported_from_there(name):
    module, _, attribute = name.rpartition(".")
    assert hasattr(import_module(module), attribute)


VIEWS = "|".join({path.stem for path in (ROOT / "chat").iterdir()} - {"__init__", "__pycache__"})
FACE = re.compile(rf"mochi_project|{'|'.join(APPS[1:])}|(?<![\w.])chat[./]({VIEWS})\b|manage\.py")


def test_no_module_of_the_library_but_the_door_names_the_face():
    door = ROOT / "mochi_server" / "app.py"
    naming = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "mochi_server").rglob("*.py")
        if path != door and FACE.search(path.read_text("utf-8"))
    }
    assert naming == set()
    assert FACE.search(door.read_text("utf-8"))
