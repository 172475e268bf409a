"""What a person types, asked of a real index, and the passages that are found."""
# ruff: noqa: RUF001 - letters of many scripts

from __future__ import annotations

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mochi_server.sessions.catalogue.answers import find, read_text
from mochi_server.sessions.catalogue.database import CatalogueDatabase
from mochi_server.sessions.catalogue.listing import ALL
from mochi_server.sessions.catalogue.rows import Row, put_row
from mochi_server.sessions.catalogue.search import put_text
from mochi_server.sessions.catalogue.search_query import MAX_CHARACTERS, MAX_WORDS, parse
from mochi_server.sessions.catalogue.search_text import (
    SearchDocument,
    fold,
    join_unspaced,
    normalize,
    split_unspaced,
)
from mochi_server.sessions.catalogue.snippets import SHOWN, passage_of
from mochi_server.sessions.codec import encode

SAID = {
    "python": "How do I use asyncio in Python? See asyncio.gather(*tasks) and snake_case names.",
    "coffee": "The café in Zürich serves crème brûlée. Don't forget C++ and naïve ideas!",
    "japanese": "東京都の天気はどうですか。Python入門を読みました。",
    "chinese": "我想学习编程，北京的天气很好。",
    "korean": "나는 학교에서 파이썬을 배웁니다.",
    "thai": "ภาษาไทยไม่มีช่องว่าง",
    "greek": "Η γρήγορη αλεπού. ΟΔΥΣΣΕΑΣ",
    "wide": "ＦＵＬＬ ｗｉｄｔｈ letters, ﬁne ligatures",
    "torn": "a NUL \0 here and half a pair \ud83d there",
}


@pytest.fixture(scope="module")
def index():
    database = CatalogueDatabase(None)
    database.prepare()
    with database.transaction("IMMEDIATE") as connection:
        for name, text in SAID.items():
            put_row(connection, Row(name, "1", 0, encode({"session_id": name})))
            put_text(connection, name, "1", SearchDocument(user=split_unspaced(normalize(text))))
    yield database
    database.close()


def found(index, text):
    if not (query := parse(text)):
        return set()
    with index.transaction() as connection:
        hits, _ = find(connection, query, ALL, most=-1, start=0, limit=100)
    return {orjson.loads(hit.line)["session_id"] for hit in hits}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("asyncio python", {"python"}),
        ("asyncio zürich", set()),
        ("PYTHON", {"python", "japanese"}),
        ("asyn", {"python"}),
        ("asyn python", set()),
        ("asyn* python", {"python"}),
        ('"asyncio in python"', {"python"}),
        ('"python in asyncio"', set()),
        ('"how do i', {"python"}),
        ('"asyncio in pyth*"', {"python"}),
        ("asyncio.gather", {"python"}),
        ("snake_case", {"python"}),
        ("python -asyncio", {"japanese"}),
        ('python -"asyncio in"', {"japanese"}),
        ("python -zürich", {"python", "japanese"}),
        ("cafe", {"coffee"}),
        ("café", {"coffee"}),
        ("CREME brulee", {"coffee"}),
        ("naive", {"coffee"}),
        ("don't", {"coffee"}),
        ("c++", {"coffee"}),
        ("東京", {"japanese"}),
        ("天気", {"japanese"}),
        ("京", {"japanese", "chinese"}),
        ("京東", set()),
        ("Python入門", {"japanese"}),
        ("学习", {"chinese"}),
        ("天气 北京", {"chinese"}),
        ("学校", set()),
        ("학교", {"korean"}),
        ("ไทย", {"thai"}),
        ("γρήγορη", {"greek"}),
        ("full width", {"wide"}),
        ("ｆｕｌｌ", {"wide"}),
        ("fine", {"wide"}),
        ("half there", {"torn"}),
        ("here", {"torn"}),
    ],
)
def test_a_query_finds_what_a_person_expects(index, text, expected):
    assert found(index, text) == expected


def test_only_what_is_unwanted_finds_all_others(index):
    assert found(index, "-python") == SAID.keys() - {"python", "japanese"}


@pytest.mark.parametrize("text", ["", "  ", "-", '"', '""', "***", "?!", '-- - "-', "\0", "\ud800"])
def test_a_query_without_a_word_is_none(text):
    assert not parse(text)


@pytest.mark.parametrize("text", ["a*", "東*", '"c"'])
def test_one_letter_is_a_whole_word(text):
    (term,) = parse(text).required
    assert not term.prefix


@pytest.mark.parametrize("word", ["AND", "OR", "NOT", "NEAR", "user:", "^python", "{user}", "(a"])
def test_what_the_index_has_a_meaning_for_is_a_word_like_any_other(index, word):
    assert found(index, f"asyncio {word}") <= {"python"}


def test_long_queries_are_cut():
    words = sum(len(term.words) for term in parse("ab " * 300).required)
    assert words == MAX_WORDS
    assert sum(len(w) for term in parse("x" * 9000).required for w in term.words) == MAX_CHARACTERS


PIECES = st.sampled_from(
    ['"', "*", "-", "^", "(", ")", ":", "+", "'", "{", "}", "AND", "OR", "NOT", "NEAR(", " ", "\0",
     "\ud800", "東", "é", "ß", "İ", "ﬁ", "\x1f", "\\", "%", "_", "python", "asyncio", "user :"]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(PIECES, max_size=12).map("".join)))
@example('NEAR("a" "b", 2)')
@example("user : python")
@example('"' * 500)
@example("-" * 500 + "a")
@example("\U0003134a \U00016100")
def test_no_query_is_an_error(index, text):
    query = parse(text)
    if query:
        with index.transaction() as connection:
            hits, _ = find(connection, query, ALL, most=-1, start=0, limit=100)
            for hit in hits:
                passage_of(read_text(connection, hit.number), query)


@given(st.text(st.characters()))
def test_folding_moves_no_character(text):
    assert len(fold(text)) == len(text)


@given(st.text())
def test_what_was_put_apart_comes_together(text):
    plain = normalize(text)
    assert join_unspaced(split_unspaced(plain)) == plain


# The passage below a session that was found


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
