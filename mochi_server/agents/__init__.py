"""Agents: specialists with a prompt, tools and a memory of their own, which models can call."""

from .discovery import AgentDefinition, AgentDiscoveryService
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
