"""What the errors of refusals have beside their words."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mochi_server.errors import ModelNotFound, ProviderBusy
from tests.support.exact_vendors import JSON, VENDORS, Vendor, serving

BODY = b'{"error": {"message": "no"}}'
LAST_DAY = "Fri, 31 Dec 9999 23:59:59 GMT"


@pytest.fixture(params=VENDORS)
async def vendor(request: pytest.FixtureRequest) -> AsyncIterator[Vendor]:
    async with serving(request.param) as found:
        yield found


async def test_a_busy_service_is_named_with_its_status(vendor: Vendor) -> None:
    vendor.answers([BODY], status=429, kind=JSON, headers={"Retry-After": "30"})
    found = await vendor.failure()
    assert type(found) is ProviderBusy
    assert found.details["provider"] == "it"
    assert found.details["upstream_status"] == 429
    assert found.details["retry_after"] == 30


async def test_a_model_that_is_gone_is_named(vendor: Vendor) -> None:
    vendor.answers([BODY], status=404, kind=JSON)
    found = await vendor.failure()
    assert type(found) is ModelNotFound
    assert found.details["provider"] == "it"
    assert found.details["model"] == vendor.model


async def test_a_wait_has_a_bound_also_where_its_end_is_named(vendor: Vendor) -> None:
    vendor.answers([BODY], status=503, kind=JSON, headers={"Retry-After": LAST_DAY})
    found = await vendor.failure()
    assert type(found) is ProviderBusy
    assert found.retry_after == 10**9
