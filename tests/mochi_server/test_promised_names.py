"""The modules and classes that users of the library may import, where they may import them from."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import signature

import pytest

import mochi_server
from mochi_server.sessions import SessionManager
from mochi_server.sessions.types import SessionCreationOptions
from tests.docs.pages import ROOT

DOTTED = re.compile(r"\bmochi_server(?:\.[a-z_]+)+\.[A-Z][A-Za-z]+")

MODULES = (
    "mochi_server",
    "mochi_server.__main__",
    "mochi_server.app",
    "mochi_server.chat.approvals",
    "mochi_server.config",
    "mochi_server.constants",
    "mochi_server.errors",
    "mochi_server.events",
    "mochi_server.ollama",
    "mochi_server.agents.tool_factory",
    "mochi_server.sessions",
    "mochi_server.testing",
    "mochi_server.tools",
)

NAMES = (
    "mochi_server:create_app",
    "mochi_server:errors",
    "mochi_server:events",
    "mochi_server:MochiServerSettings",
    "mochi_server:Provider",
    "mochi_server:Runtime",
    "mochi_server:SessionStorage",
    "mochi_server:Tool",
    "mochi_server.agents:AgentDiscoveryService",
    "mochi_server.agents:AgentExecutionService",
    "mochi_server.agents.config:AgentSettings",
    "mochi_server.agents.discovery:AgentDefinition",
    "mochi_server.agents.discovery:AgentDiscoveryService",
    "mochi_server.agents.execution:AgentExecutionService",
    "mochi_server.agents.prompt_loader:PromptLoader",
    "mochi_server.app:create_app",
    "chat.approvals:ChannelLayerApprovals",
    "mochi_server.chat.approvals:ApprovalBroker",
    "mochi_server.chat.approvals:ApprovalRequest",
    "mochi_server.chat.approvals:Decision",
    "mochi_server.chat.approvals:LocalApprovals",
    "mochi_server.chat.approvals:Pending",
    "mochi_server.config:MochiServerSettings",
    "mochi_server.config:load_settings",
    "mochi_server.errors:MochiError",
    "mochi_server.events:ConfirmationRequired",
    "mochi_server.events:ContentDelta",
    "mochi_server.events:Done",
    "mochi_server.events:Event",
    "mochi_server.ollama:AsyncInstructorOllamaClient",
    "mochi_server.ollama:AsyncOllamaClient",
    "mochi_server.ollama:OllamaClient",
    "mochi_server.ollama.async_client:AsyncInstructorOllamaClient",
    "mochi_server.ollama.async_client:AsyncOllamaClient",
    "mochi_server.ollama.client:OllamaClient",
    "mochi_server.ollama.types:ChatMessage",
    "mochi_server.ollama.types:ModelInfo",
    "mochi_server.protocol.events:ContentDelta",
    "mochi_server.providers.base:Provider",
    "mochi_server.services.context_window:DynamicContextWindowService",
    "mochi_server.services.summarization:SummarizationService",
    "mochi_server.services.summary_model:SummaryModelManager",
    "mochi_server.services.system_prompts:SystemPromptService",
    "mochi_server.sessions:AssistantMessage",
    "mochi_server.sessions:SessionManager",
    "mochi_server.sessions:SystemMessage",
    "mochi_server.sessions:ToolMessage",
    "mochi_server.sessions:ToolSettings",
    "mochi_server.sessions:UserMessage",
    "mochi_server.sessions.manager:SessionManager",
    "mochi_server.sessions.session:ChatSession",
    "mochi_server.sessions.session:Message",
    "mochi_server.sessions.session:SessionMetadata",
    "mochi_server.sessions.storage.base:SessionStorage",
    "mochi_server.sessions.types:SessionCreationOptions",
    "mochi_server.testing:running_server",
    "mochi_server.tools:ToolDiscoveryService",
    "mochi_server.tools:ToolExecutionService",
    "mochi_server.tools:ToolSchemaService",
    "mochi_server.tools.config:ToolExecutionPolicy",
    "mochi_server.tools.config:ToolSettings",
    "mochi_server.tools.discovery:ToolDiscoveryService",
    "mochi_server.tools.execution:ToolExecutionResult",
    "mochi_server.tools.execution:ToolExecutionService",
    "mochi_server.tools.schema:ToolSchemaService",
)


@pytest.mark.parametrize("module", MODULES)
def test_a_promised_module_is_there(module: str) -> None:
    assert import_module(module).__doc__


@pytest.mark.parametrize("name", NAMES)
def test_a_promised_name_is_there(name: str) -> None:
    module, _, attribute = name.partition(":")
    assert getattr(import_module(module), attribute).__doc__


def test_everything_that_the_package_exports_is_there() -> None:
    assert dir(mochi_server) == sorted(mochi_server.__all__)
    assert all(hasattr(mochi_server, name) for name in mochi_server.__all__)


def test_a_name_that_the_package_does_not_export_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Runtimes'"):
        mochi_server.Runtimes  # noqa: B018


def test_the_options_of_a_new_session_are_those_of_the_manager() -> None:
    parameters = signature(SessionManager.create).parameters
    assert set(SessionCreationOptions.__annotations__) < set(parameters)


def names_in_pages() -> list[str]:
    """Every ``mochi_server.….Class`` that the documentation names."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    texts = [page.read_text("utf-8") for page in pages if page.parent.name != "decisions"]
    return sorted({name for text in texts for name in DOTTED.findall(text)})


@pytest.mark.parametrize("name", names_in_pages())
def test_a_class_that_a_page_names_can_be_imported_from_there(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert hasattr(import_module(module), attribute)
