"""Notes that a small model writes: what of its answer is kept."""

from __future__ import annotations

from mochi_server.services.compaction.text import with_new, without_inventions

PART = "[user] Ada has 10.0.0.1, Ben has 10.0.0.2, Cy has 10.0.0.7. We test the upload form."


def test_lines_that_a_model_writes_on_and_on_are_kept_as_far_as_the_messages_have_their_words():
    facts = [f"- The machine of {name} has the address {address}." for name, address in MACHINES]
    loop = [f"- We will test the {what} to see that it works." for what in MADE_UP]
    answer = "\n".join([*facts, "", *loop, "- It is called Marmalade."])
    assert without_inventions(answer, PART).splitlines() == [
        *facts,
        *loop[:2],
        loop[3],
        "- It is called Marmalade.",
    ]


MACHINES = [("Ada", "10.0.0.1"), ("Ben", "10.0.0.2"), ("Cy", "10.0.0.7")]
MADE_UP = ["payment", "support", "training", "upload form", "machine learning", "virtual reality"]


def test_what_differs_by_a_sign_alone_is_new():
    notes = "- The program is in C.\n- The offset is 3.\n- x < y"
    new = "- The program is in C++.\n- The offset is -3.\n-  x < y\nThe notes so far:\n- x > y"
    lines = ["- The program is in C++.", "- The offset is -3.", "- x > y"]
    assert with_new(notes, new).splitlines() == [*notes.splitlines(), *lines]


def test_an_answer_without_such_lines_stays_as_it_is():
    answer = "- Red is the colour.\n- Blue was the colour.\n- Ada decides about money."
    assert without_inventions(answer, PART) == answer
