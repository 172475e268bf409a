"""Chats of Open WebUI."""

from __future__ import annotations

from base64 import b64encode

from tests.support.images import png


def chat(messages, shown, **more):
    inner = {
        "title": "Sums", "models": ["qwen3:8b"], "params": {"system": "Be brief."},
        "history": {"currentId": shown, "messages": messages},
    }  # fmt: skip
    return {
        "id": "chat-1", "title": "Sums", "chat": inner, "created_at": 1700000000,
        "updated_at": 1700000010, "archived": True, "pinned": False, "meta": {"tags": ["maths"]},
        **more,
    }  # fmt: skip


def said(key, parent, role, content, **more):
    return {
        "id": key, "parentId": parent, "childrenIds": [], "role": role, "content": content,
        "timestamp": 1700000000, **more,
    }  # fmt: skip


QUESTION = said("u1", None, "user", "15 * 17?")
CALL = {"function": {"name": "multiply", "arguments": {"a": 15}}, "id": "call_1"}
TAKEN = [
    ("system", "Be brief."),
    ("user", "15 * 17?"),
    ("assistant", "", {"thinking": "In parts.\nOr so.", "tool_calls": [CALL], "model": "qwen3:8b"}),
    ("tool", "255", {"tool_name": "multiply", "tool_call_id": "call_1"}),
    ("assistant", "It is 255.", {"model": "qwen3:8b"}),
]


async def test_thinking_and_calls_of_the_output_are_taken_once(imports):
    output = [
        {"type": "reasoning", "content": [{"type": "output_text", "text": "In parts.\nOr so."}]},
        {"type": "function_call", "call_id": "call_1", "name": "multiply",
         "arguments": '{"a": 15}'},
        {"type": "function_call_output", "call_id": "call_1",
         "output": [{"type": "input_text", "text": "255"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "It is 255."}]},
    ]  # fmt: skip
    answer = said(
        "a1", "u1", "assistant", '<details type="reasoning">x</details>It is 255.',
        model="qwen3:8b", output=output,
    )  # fmt: skip
    report = await imports.run([chat({"u1": QUESTION, "a1": answer}, "a1")])
    [session] = report.sessions
    assert await imports.said(session.session_id) == TAKEN
    metadata = await imports.metadata(session.session_id)
    assert (metadata["archived"], metadata["tags"]) == (True, ["maths"])
    assert not report.left_out


async def test_thinking_and_calls_that_are_marked_up_are_taken(imports):
    content = (
        '<details type="reasoning" done="true" duration="3">\n<summary>Thought</summary>\n'
        "&gt; In parts.\n&gt; Or so.\n</details>\n"
        '<details type="tool_calls" done="true" id="call_1" name="multiply" '
        'arguments="&quot;{\\&quot;a\\&quot;: 15}&quot;" result="&quot;255&quot;">\n'
        "<summary>Tool Executed</summary>\n</details>\nIt is 255."
    )
    answer = said("a1", "u1", "assistant", content, model="qwen3:8b")
    report = await imports.run([chat({"u1": QUESTION, "a1": answer}, "a1")])
    assert await imports.said(report.sessions[0].session_id) == TAKEN


async def test_an_open_mark_is_text(imports):
    content = 'Look: <details type="reasoning">' * 3
    answer = said("a1", "u1", "assistant", content)
    report = await imports.run([chat({"u1": QUESTION, "a1": answer}, "a1")])
    assert (await imports.said(report.sessions[0].session_id))[-1] == ("assistant", content)


async def test_branches_and_images_are_taken_also_of_a_single_older_chat(imports):
    url = f"data:image/png;base64,{b64encode(png()).decode()}"
    files = [
        {"type": "image", "url": url},
        {"type": "image", "url": "/api/v1/files/1/content"},
        {"type": "file", "name": "a.txt", "file": {"data": {"content": "Some text"}}},
    ]
    older = {
        "id": "", "title": "Old", "models": [], "tags": [], "timestamp": 1700000000127,
        "history": {"currentId": "a2", "messages": {
            "u1": said("u1", None, "user", "Look", files=files),
            "a1": said("a1", "u1", "assistant", "One"),
            "a2": said("a2", "u1", "assistant", "Two"),
        }},
    }  # fmt: skip
    report = await imports.run(older)
    shown, fork = report.sessions
    assert report.left_out == {"image that is not in the export": 1}
    for session, words in ((shown, "Two"), (fork, "One")):
        question, answer = await imports.messages(session.session_id)
        assert [each["media_type"] for each in question["attachments"]] == [
            "image/png", "text/plain"
        ]  # fmt: skip
        assert answer["content"] == words
        attachment_id = question["attachments"][0]["attachment_id"]
        assert await imports.attachments.read(session.session_id, attachment_id) == png()
    again = await imports.run(older)
    assert [each.outcome for each in again.sessions] == ["unchanged", "unchanged"]


async def test_code_that_was_run_is_a_call_with_its_output(imports):
    call = {"id": "a1-1", "function": {"name": "code_interpreter",
            "arguments": {"code": "print(1)", "language": "python"}}}  # fmt: skip
    taken = [
        ("assistant", "", {"tool_calls": [call]}),
        ("tool", "1", {"tool_name": "code_interpreter", "tool_call_id": "a1-1"}),
        ("assistant", "Answer"),
    ]
    marked_up = (
        '<details type="code_interpreter" done="true" output="{&quot;stdout&quot;:&quot;1&quot;}">'
        "\n<summary>Analyzed</summary>\n```python\nprint(1)\n```\n</details>\nAnswer"
    )
    output = [
        {"type": "open_webui:code_interpreter", "code": "print(1)", "lang": "python",
         "output": {"stdout": "1", "result": None}},
        {"type": "message", "content": [{"type": "output_text", "text": "Answer"}]},
    ]  # fmt: skip
    for answer in (
        said("a1", "u1", "assistant", marked_up),
        said("a1", "u1", "assistant", "", output=output),
    ):
        report = await imports.run([chat({"u1": QUESTION, "a1": answer}, "a1")])
        assert (await imports.said(report.sessions[0].session_id))[2:] == taken
        assert not report.left_out
        await imports.sessions.delete(report.sessions[0].session_id)


async def test_markup_of_another_type_is_text_and_counted(imports):
    content = '<details type="chart" data="5">\n<summary>Chart</summary>\nBars\n</details>\nDone'
    answer = said("a1", "u1", "assistant", content, sources=[{"source": {}}])
    report = await imports.run([chat({"u1": QUESTION, "a1": answer}, "a1")])
    assert (await imports.said(report.sessions[0].session_id))[-1] == ("assistant", "Bars\n\nDone")
    assert report.left_out == {"markup of the type chart": 1, "source of a reply": 1}
