"""What goes on where hundreds of requests begin at the same moment."""

from __future__ import annotations

import asyncio
from itertools import groupby

import anyio

import mochi_project.urls  # noqa: F401 - wires name their paths
from mochi_project.http.gate import Gate
from mochi_server.config import load_settings

REQUEST = {
    "type": "http",
    "method": "POST",
    "path": "/api/v1/chat/one/stream",
    "query_string": b"",
    "headers": [(b"host", b"localhost")],
}


class Site:
    """A gate in front of an application that only notes which requests have begun."""

    def __init__(self):
        self.steps = []
        self.gate = Gate(self.begin, load_settings(_env_file=None))

    async def begin(self, scope, receive, send):
        self.steps.append(scope["number"])

    async def stream(self, requests):
        """Send a token in each round of the loop, until so many requests have begun."""
        while len(self.steps) - self.steps.count("token") < requests:
            self.steps.append("token")
            await asyncio.sleep(0)

    def request(self, number):
        return self.gate({**REQUEST, "number": number}, None, None)

    @property
    def begun(self):
        return [step for step in self.steps if step != "token"]


async def test_streams_go_on_while_hundreds_of_requests_begin():
    site = Site()
    with anyio.fail_after(60):
        await asyncio.gather(site.stream(300), *map(site.request, range(300)))

    assert site.begun == [*range(300)], "the first comes first"
    stretches = groupby(site.steps, lambda step: step == "token")
    assert max(len([*steps]) for is_token, steps in stretches if not is_token) <= 4


async def test_requests_that_are_cancelled_before_they_begin_hold_up_no_others():
    site = Site()
    tasks = [asyncio.ensure_future(site.request(number)) for number in range(20)]
    await asyncio.sleep(0)  # each has come as far as it can
    for task in tasks[5:15]:
        task.cancel()
    with anyio.fail_after(60):
        await asyncio.wait(tasks)

    assert site.begun == [*range(5), *range(15, 20)]


def test_a_loop_that_has_ended_leaves_nothing_to_wait_for():
    site = Site()

    async def leave():
        tasks = [asyncio.ensure_future(site.request(number)) for number in range(20)]
        await asyncio.sleep(0)
        assert not all(task.done() for task in tasks)

    asyncio.run(leave())
    site.steps.clear()

    async def come():
        with anyio.fail_after(60):
            await asyncio.gather(*map(site.request, range(20)))

    asyncio.run(come())
    assert site.begun == [*range(20)]
