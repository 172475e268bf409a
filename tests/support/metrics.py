"""Reads what a server answers to Prometheus."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from .server import Server

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Samples:
    """Every number, by its name and labels; two numbers of the same are an error."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


class Scrape:
    """The answer to one request of Prometheus."""

    def __init__(self, text: str) -> None:
        self.samples = parsed(text)

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of all numbers of this name that have these labels, perhaps among others."""
        wanted = labels.items()
        return sum(
            value for (key, has), value in self.samples.items() if key == name and wanted <= has
        )

    def values(self, name: str, label: str) -> set[str]:
        """The values of a label."""
        return {dict(labels)[label] for key, labels in self.samples if key == name}


async def scrape(server: Server, **options: object) -> Scrape:
    async with server.http.get(f"{server.url}/metrics", **options) as response:  # type: ignore[arg-type]
        text = await response.text()
        assert response.status == 200, text
        return Scrape(text)
