"""What vendors' services, and gateways before them, answer beside a well-formed stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mochi_server.errors import ModelNotFound, ProviderBusy, ProviderError
from mochi_server.providers.base import ContentDelta, Finish
from tests.support.exact_vendors import JSON, VENDORS, Vendor, serving

HTML = "text/html; charset=utf-8"


@pytest.fixture(params=VENDORS)
async def vendor(request: pytest.FixtureRequest) -> AsyncIterator[Vendor]:
    async with serving(request.param) as found:
        yield found


BODIES: list[Any] = [
    {"error": "The words."},
    {"detail": "The words."},
    {"detail": [{"loc": ["body", "messages"], "msg": "The words."}]},
    {"message": "The words.", "object": "error"},
    {"errors": [{"message": "The words."}]},
    {"error": {"code": 1, "reason": "The words."}},
    [{"error": {"message": "The words."}}],
    "The words.",
]


@pytest.mark.parametrize("body", BODIES, ids=str)
async def test_a_refusal_of_any_shape_is_told_in_its_own_words(vendor: Vendor, body: Any) -> None:
    vendor.answers([json.dumps(body).encode()], status=400, kind=JSON)
    found = await vendor.failure()
    assert type(found) is ProviderError
    assert "The words." in found.message
    vendor.answers([b"The words."], status=404, kind="text/plain")
    found = await vendor.failure()
    assert type(found) is ModelNotFound
    assert "The words." in found.message


@pytest.mark.parametrize(
    ("status", "wait", "kind", "details"),
    [
        (429, "30", ProviderBusy, {"upstream_status": 429, "retry_after": 30}),
        (503, "Fri, 31 Dec 9999 23:59:59 GMT", ProviderBusy, {"retry_after": 10**9}),
        (404, "30", ModelNotFound, {}),
    ],
)
async def test_a_refusal_has_details_and_its_wait_a_bound(
    vendor: Vendor, status: int, wait: str, kind: type[ProviderError], details: dict[str, Any]
) -> None:
    body = b'{"error": {"message": "no"}}'
    vendor.answers([body], status=status, kind=JSON, headers={"Retry-After": wait})
    found = await vendor.failure()
    assert type(found) is kind
    named = {"model": vendor.model} if kind is ModelNotFound else {}
    assert found.details.items() >= {"provider": "it", **named, **details}.items()


@pytest.mark.parametrize("status", [502, 200])
async def test_a_page_for_browsers_is_an_error_that_a_person_can_read(
    vendor: Vendor, status: int
) -> None:
    page = b"<html>" + b"x" * 200_000
    vendor.answers([page], status=status, kind=HTML)
    found = await vendor.failure()
    assert type(found) is ProviderError
    assert "502" in str(found.as_json()) if status == 502 else "html" in found.message
    assert len(str(found.as_json())) < 3000


@pytest.mark.parametrize("raw", ["The reason.", {"error": {"message": "The reason."}}])
async def test_what_a_gateway_was_told_is_told_as_well(raw: Any) -> None:
    """OpenRouter's own words are no more than "Provider returned error"."""
    async with serving("openai") as vendor:
        error = {"message": "Provider returned error", "metadata": {"raw": raw}}
        vendor.answers([json.dumps({"error": error}).encode()], status=400, kind=JSON)
        assert "Provider returned error: The reason." in (await vendor.failure()).message


WORDLESS: list[Any] = [[], {}, 7, {"odd": [[]]}, {"odd": json.loads("[" * 300 + "]" * 300)}]


@pytest.mark.parametrize("body", WORDLESS, ids=lambda body: str(body)[:14])
@pytest.mark.parametrize("status", [500, 200])
async def test_a_body_without_words_is_an_error_all_the_same(
    vendor: Vendor, body: Any, status: int
) -> None:
    vendor.answers([json.dumps(body).encode()], status=status, kind=JSON)
    found = await vendor.failure()
    assert type(found) is ProviderError
    assert "500" in str(found.as_json()) if status == 500 else True


async def test_an_error_is_not_longer_than_a_person_reads(vendor: Vendor) -> None:
    body = {"error": {"message": "The words. " * 20_000, "type": "odd" * 20_000, "code": 500}}
    vendor.answers([json.dumps(body).encode()], status=500, kind=JSON)
    found = await vendor.failure()
    assert "The words." in found.message
    assert len(str(found.as_json())) < 6000


@pytest.mark.parametrize("kind", [JSON, "application/json; charset=utf-8", "text/plain"])
async def test_an_error_that_calls_itself_a_success_is_an_error(vendor: Vendor, kind: str) -> None:
    """As gateways send it: status 200, and the error as JSON."""
    body = {"error": {"message": "No credits.", "code": 402, "type": "odd", "status": "ODD"}}
    vendor.answers([json.dumps(body).encode()], kind=kind)
    found = await vendor.failure()
    assert type(found) is ProviderError
    assert "No credits." in found.message


@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_an_error_that_is_no_more_than_a_flag_is_told_with_what_is_beside_it(
    name: str,
) -> None:
    async with serving(name) as vendor:
        vendor.answers([b'{"error": true, "message": "No credits."}'], kind=JSON)
        assert "No credits." in (await vendor.failure()).message


async def test_a_busy_service_that_calls_it_a_success_is_busy(vendor: Vendor) -> None:
    codes = {"code": 429, "type": "rate_limit_error", "status": "RESOURCE_EXHAUSTED"}
    body = json.dumps({"error": {"message": "Slow down.", **codes}}, indent=1).encode()
    for _ in range(3):
        vendor.answers([body], kind=JSON)
    assert type(await vendor.failure()) is ProviderBusy


async def test_a_stream_need_not_call_itself_one(vendor: Vendor) -> None:
    vendor.answers([vendor.reply("Yes")], kind=JSON)
    first, finish = await vendor.ask()
    assert first == ContentDelta("Yes")
    assert isinstance(finish, Finish)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
async def test_a_reply_may_come_in_single_bytes(vendor: Vendor, end: bytes) -> None:
    words = "Grüße, 😀\u2028\u0085."
    reply = vendor.reply(words).replace(b"\n", end)
    vendor.answers([reply[n : n + 1] for n in range(len(reply))])
    chunks = await vendor.ask()
    assert "".join(c.content for c in chunks if isinstance(c, ContentDelta)) == words
