"""What goes on where hundreds of requests begin at the same moment."""

from __future__ import annotations

import asyncio
from itertools import groupby

import anyio
import pytest

from mochi_project.http.handler import MochiASGIHandler

REQUEST = {
    "type": "http",
    "method": "POST",
    "path": "/api/v1/chat/one/stream",
    "root_path": "",
    "query_string": b"",
    "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
}


class Site:
    """The application, and in which order it answers requests beside a stream."""

    def __init__(self):
        self.steps = []
        self.handler = MochiASGIHandler()

    async def stream(self, requests):
        """Send a token in each round of the loop, until so many requests were answered."""
        while len(self.steps) - self.steps.count("token") < requests:
            self.steps.append("token")
            await asyncio.sleep(0)

    async def request(self, number, body=None):
        """Send what is refused at once; its body when that comes."""
        parts = [b'{"unknown": 1}']

        async def receive():
            if not parts:  # it stays until it is answered
                await asyncio.get_running_loop().create_future()
            if body is not None:
                await body.wait()
            return {"type": "http.request", "body": parts.pop(), "more_body": False}

        async def send(message):
            if message["type"] == "http.response.start":
                assert message["status"] == 422
                self.steps.append(number)

        await self.handler(REQUEST.copy(), receive, send)

    @property
    def begun(self):
        return [step for step in self.steps if step != "token"]


@pytest.mark.parametrize("is_late", [False, True])
async def test_streams_go_on_while_hundreds_of_requests_begin(is_late):
    """Whether their bodies come with them, or later, as those of slow networks."""
    site, bodies = Site(), asyncio.Event() if is_late else None
    with anyio.fail_after(60):
        requests = [asyncio.ensure_future(site.request(number, bodies)) for number in range(300)]
        if bodies is not None:
            for _ in range(300):
                await asyncio.sleep(0)
            bodies.set()
        await asyncio.gather(site.stream(300), *requests)

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
