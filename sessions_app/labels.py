"""What a person writes on a session: title, tags, pinned, archived."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, StrictBool

from mochi_server.errors import JSONObject

TITLE_LENGTH, TAG_LENGTH, MOST_TAGS = 200, 50, 50

ARCHIVED = {"true": True, "false": False, "all": None}
"""What of the sessions a list shows, and what a filter says then."""

NO_LABELS: JSONObject = {"title": None, "tags": [], "pinned": False, "archived": False}
LABELS: JSONObject = {
    "title": "Learning asyncio",
    "tags": ["python"],
    "pinned": True,
    "archived": False,
}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _once(tags: list[str] | None) -> list[str]:
    return list(dict.fromkeys(tags or []))


Title = Annotated[
    str,
    Field(pattern=r"\S", max_length=TITLE_LENGTH, description="Not only white space."),
    AfterValidator(_one_line),
]
Tag = Annotated[str, Field(pattern=r"\S", max_length=TAG_LENGTH), AfterValidator(_one_line)]
Tags = Annotated[list[Tag] | None, Field(max_length=MOST_TAGS), AfterValidator(_once)]


class LabelsBody(BaseModel):
    """The labels in a request; what is absent stays."""

    title: Title | None = Field(
        default=None, description="Null: the beginning of the summary is the title again."
    )
    tags: Tags = Field(default=None, description="All of them; null or an empty list: none.")
    pinned: StrictBool = Field(default=False, description="To be kept in sight; never pruned.")
    archived: StrictBool = Field(default=False, description="Put away.")

    def labels(self) -> dict[str, Any]:
        """Those that the request names."""
        return self.model_dump(include=set(LabelsBody.model_fields), exclude_unset=True)


class LabelsShown(BaseModel):
    """The labels in an answer."""

    title: str | None = Field(
        description="As it was set, else the first sentence of the summary; null without either."
    )
    tags: list[str]
    pinned: bool
    archived: bool
