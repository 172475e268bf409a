"""The passage below a session that was found."""

from __future__ import annotations

import pytest

from mochi_server.sessions.catalogue.search_query import parse
from mochi_server.sessions.catalogue.search_text import SearchDocument, split_unspaced
from mochi_server.sessions.catalogue.snippets import SHOWN, passage_of


def passage(text, **texts):
    return passage_of(
        SearchDocument(**{key: split_unspaced(said) for key, said in texts.items()}), parse(text)
    )


def marked(found):
    return "".join(f"[{part.text}]" if part.match else part.text for part in found.parts)


FAR = "word " * 100


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("asyncio", "How do I use asyncio?", "How do I use [asyncio]?"),
        ("asy", "How do I use Asyncio?", "How do I use [Asyncio]?"),
        ("asy how", "How do I use asyncio?", "[How] do I use asyncio?"),
        ("creme", "Une crème brûlée", "Une [crème] brûlée"),
        ('"two  words"', "Here are two\nwords.", "Here are [two words]."),
        ("天気", "東京の天気は", "東京の[天気]は"),
        ("one two", "one and two", "[one] and [two]"),
        ("on one", "one", "[one]"),
        ("art", "party art", "party [art]"),
    ],
)
def test_what_matches_is_marked(query, text, expected):
    assert marked(passage(query, user=text)) == expected


def test_a_passage_of_a_long_text_shows_whole_words_around_the_match():
    found = marked(passage("needle", user=f"{FAR}needle {FAR}"))
    assert found.startswith("…word word")
    assert found.endswith("word…")
    assert "[needle]" in found
    assert len(found) < SHOWN + 10


def test_the_passage_with_most_of_the_words_is_shown():
    text = f"red {FAR} blue {FAR} red and blue {FAR}"
    assert "[red] and [blue]" in marked(passage("red blue", user=text))


def test_words_of_the_person_go_before_those_of_the_model_unless_it_has_more_of_them():
    both = {"user": "red", "assistant": "red"}
    assert passage("red", **both).found_in == "user"
    assert passage("red blue", **both | {"assistant": "red, blue"}).found_in == "assistant"


@pytest.mark.parametrize("place", SearchDocument._fields)
def test_it_is_told_where_the_passage_is_from(place):
    assert passage("red", **{place: "red"}).found_in == place


def test_without_a_match_the_beginning_is_shown():
    found = passage("-red", user=f"Hello there. {FAR}")
    assert found.found_in is None
    assert marked(found).startswith("Hello there. word")
    assert not any(part.match for part in found.parts)


def test_an_empty_session_has_an_empty_passage():
    assert passage("-red").parts == []
