"""Who is asked about what."""

from __future__ import annotations

import pytest

from mochi_server.sessions.types import ToolExecutionPolicy
from mochi_server.tools.policy import needs_confirmation
from tests.support.tools import PlainTool

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


def test_every_policy_is_decided():
    assert {policy for policy, _, _ in CASES} == {policy.value for policy in ToolExecutionPolicy}
