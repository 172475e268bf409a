"""The tools of several sources, and what a session selects."""

from __future__ import annotations

import anyio
import pytest

from mochi_server.sessions.types import ToolExecutionPolicy, ToolSettings
from mochi_server.tools.base import Problem
from mochi_server.tools.catalogue import Selection, ToolCatalogue
from mochi_server.tools.config import needs_confirmation
from tests.support.tools import PlainSource, PlainTool

BROKEN = Problem(file="/tools/broken.py", line=3, reason="SyntaxError: invalid syntax")


def two_sources():
    first = PlainSource("directory", ["add", "roll"], {"math": ["add"], "all": ["add", "roll"]})
    second = PlainSource("mcp:files", ["read", "add"], {"all": ["read", "add"]}, [BROKEN])
    return ToolCatalogue([first, second])


async def test_tools_of_all_sources_are_found_by_name():
    tools = (await two_sources().inventory()).tools
    assert list(tools) == ["add", "roll", "read"]
    assert tools["read"].source == "mcp:files"


async def test_the_earlier_source_wins_and_the_other_is_a_problem():
    catalogue = two_sources()
    assert catalogue.problems == ()
    found = await catalogue.inventory()
    assert found.tools["add"].source == "directory"
    clash = Problem(
        file="mcp:files",
        line=None,
        reason="The name 'add' is taken by a tool of 'directory', which comes first.",
        tool="add",
    )
    assert list(found.problems) == [BROKEN, clash]
    assert catalogue.problems == [BROKEN, clash]


class WaitingSource(PlainSource):
    """Has its tools when all sources are asked for theirs."""

    def __init__(self, name: str, asked: set[str], everybody: anyio.Event) -> None:
        super().__init__(name, [name])
        self._asked, self._everybody = asked, everybody

    async def tools(self):
        self._asked.add(self.name)
        if len(self._asked) == 2:
            self._everybody.set()
        await self._everybody.wait()
        return await super().tools()


async def test_all_sources_are_asked_side_by_side():
    asked, everybody = set(), anyio.Event()
    names = ("slow", "hangs a while")
    catalogue = ToolCatalogue([WaitingSource(name, asked, everybody) for name in names])
    with anyio.fail_after(30):
        assert list((await catalogue.inventory()).tools) == [*names]


async def test_a_name_that_one_source_has_twice_is_a_problem():
    catalogue = ToolCatalogue([PlainSource("plain", ["add", "add"])])
    assert list((await catalogue.inventory()).tools) == ["add"]
    assert [problem.tool for problem in catalogue.problems] == ["add"]


async def test_groups_of_one_name_are_put_together():
    found = await two_sources().inventory()
    assert found.groups == {"math": ["add"], "all": ["add", "roll", "read"]}


async def test_a_selection_keeps_the_order_of_the_settings_then_of_the_group():
    settings = ToolSettings(tools=["read", "nothing", "roll", "read"], tool_group="all")
    selection = await two_sources().select(settings)
    assert list(selection.tools) == ["read", "roll", "add"]
    assert list(selection.unknown) == ["nothing"]
    assert selection.unknown_group is None


async def test_a_group_that_nobody_has_is_reported():
    selection = await two_sources().select(ToolSettings(tools=["add"], tool_group="music"))
    assert list(selection.tools) == ["add"]
    assert (list(selection.unknown), selection.unknown_group) == ([], "music")


@pytest.mark.parametrize("settings", [None, ToolSettings(), ToolSettings(tool_group="")])
async def test_no_source_is_asked_where_nothing_is_enabled(settings):
    source = PlainSource("plain", ["add"])
    assert await ToolCatalogue([source]).select(settings) == Selection()
    assert source.asked == 0


async def test_reload_and_close_reach_every_source():
    sources = [PlainSource("a"), PlainSource("b")]
    catalogue = ToolCatalogue(sources)
    await catalogue.reload()
    await catalogue.aclose()
    assert [(source.reloads, source.closed) for source in sources] == [(1, 1), (1, 1)]


# Whether a person is asked


CASES = [
    ("always_confirm", True, True),
    ("always_confirm", False, True),
    ("always_confirm", None, True),
    ("never_confirm", True, False),
    ("never_confirm", False, False),
    ("never_confirm", None, False),
    ("confirm_destructive", True, True),
    ("confirm_destructive", False, False),
    ("confirm_destructive", None, True),
]


@pytest.mark.parametrize(("policy", "destructive", "asked"), CASES)
def test_a_person_is_asked_unless_the_policy_or_the_package_says_no(policy, destructive, asked):
    tool = PlainTool("wipe", destructive=destructive)
    assert needs_confirmation(ToolExecutionPolicy(policy), tool) is asked


@pytest.mark.parametrize("policy", ["sometimes", "NEVER_CONFIRM", "", None, False, {}])
def test_a_policy_that_nobody_knows_asks(policy):
    assert needs_confirmation(policy, PlainTool("look", destructive=False))


@pytest.mark.parametrize(
    ("session", "own", "asked"),
    [
        ("never_confirm", {"wipe": "always_confirm"}, True),
        ("never_confirm", {"wipe": "confirm_destructive"}, True),
        ("never_confirm", {"wipe": "never_confirm"}, False),
        ("never_confirm", {"look": "always_confirm"}, False),
        ("never_confirm", {"wipe": "as_yesterday"}, True),
        ("never_confirm", {"wipe": None}, True),
        ("never_confirm", ["wipe"], True),
        ("never_confirm", None, False),
        ("always_confirm", {"wipe": "never_confirm"}, True),
        ("confirm_destructive", {"wipe": "never_confirm"}, True),
        ("as_yesterday", {"wipe": "never_confirm"}, True),
    ],
)
def test_the_stricter_of_the_policies_of_session_and_tool_counts(session, own, asked):
    settings = ToolSettings(execution_policy=session, tool_policies=own)
    wipe = PlainTool("wipe", destructive=True)
    assert any(needs_confirmation(each, wipe) for each in settings.policies_of("wipe")) is asked


def test_every_policy_is_decided():
    assert {policy for policy, _, _ in CASES} == {policy.value for policy in ToolExecutionPolicy}
