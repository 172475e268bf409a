from __future__ import annotations

import json
import re
from urllib.parse import urljoin

import pytest


@pytest.mark.parametrize("place", ["/docs", "/docs/"])
async def test_the_page_needs_nothing_from_elsewhere(api, place):
    page = await api.get(place)
    text = page.content.decode()
    assert page.status_code == 200
    assert page["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert page["X-Frame-Options"] == "DENY"
    assert "//" not in re.sub(r"<!--.*?-->", "", text)
    links = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert len(links) == 4
    for link in links:
        asset = await api.client.get(urljoin(f"/api/v1{place}", link))
        assert asset.status_code == 200, link
        assert len(asset.content) > 100
    (settings,) = re.findall(r'id="swagger-settings">(.*?)</script>', text)
    document = urljoin(f"/api/v1{place}", json.loads(settings)["url"])
    assert document == "/api/v1/openapi.json"
    assert (await api.get("/docs/settings.py")).status_code == 404
