"""Agents: specialists with a prompt, tools and a memory of their own, which models can call."""

from .definition import AgentDefinition
from .discovery import AgentDiscoveryService
from .execution import AgentExecutionService
from .prompt_loader import PromptLoader
from .tool_factory import AgentSource, AgentTool

__all__ = [
    "AgentDefinition",
    "AgentDiscoveryService",
    "AgentExecutionService",
    "AgentSource",
    "AgentTool",
    "PromptLoader",
]
