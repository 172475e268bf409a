"""Images and documents that are attached to messages."""

from __future__ import annotations

import base64
from typing import Any

from tests.support.images import PDF, png


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


IMAGE = {"data": encoded(png()), "name": "cat.png"}


async def messages_of(api: Any, session_id: str) -> list[dict[str, Any]]:
    stored: list[dict[str, Any]] = (await api.get(f"/sessions/{session_id}/messages")).json()[
        "messages"
    ]
    return stored


async def test_a_model_sees_the_images_of_a_message_on_every_later_turn(
    api: Any, ollama: Any, mochi: Any
) -> None:
    ollama.add_model("llava:7b", capabilities=["completion", "vision"])
    session_id = await api.new_session(model="llava:7b")
    ollama.reply(["A cat."])
    text = {"data": encoded(b"Rice"), "name": "rice.md"}
    body = {"message": "What is this?", "attachments": [IMAGE, text]}
    assert (await api.post(f"/chat/{session_id}", body)).status_code == 200
    question = (await messages_of(api, session_id))[0]
    kept, _ = question["attachments"]
    assert {**kept, "attachment_id": ""} == {
        "attachment_id": "",
        "media_type": "image/png",
        "size": len(png()),
        "name": "cat.png",
    }
    sent = ollama.chats[-1]["messages"]
    assert sent[0]["images"] == [IMAGE["data"]]
    assert sent[0]["content"].startswith("[Attachment ")
    assert sent[0]["content"].endswith("]\n\nWhat is this?")
    assert "cat.png" not in sent[0]["content"]

    ollama.reply(["Grey."])
    assert (await api.post(f"/chat/{session_id}", {"message": "Colour?"})).status_code == 200
    assert ollama.chats[-1]["messages"][0] == sent[0]
    assert "images" not in ollama.chats[-1]["messages"][-1]

    # A fork has its own copy.
    fork = (await api.post(f"/sessions/{session_id}/fork")).json()["session_id"]
    await api.delete(f"/sessions/{session_id}")
    ollama.reply(["A cat."])
    assert (await api.post(f"/chat/{fork}", {"message": "Again?"})).status_code == 200
    assert ollama.chats[-1]["messages"][0]["images"] == [IMAGE["data"]]


async def test_a_model_that_does_not_see_refuses_the_message_and_is_told_of_older_images(
    api: Any, ollama: Any, mochi: Any
) -> None:
    session_id = await api.new_session(model="qwen3:14b")
    body = {"message": "What is this?", "attachments": [IMAGE]}
    for route in ("", "/stream", "/runs"):
        answer = await api.post(f"/chat/{session_id}{route}", body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "IMAGES_NOT_SUPPORTED")
    assert await messages_of(api, session_id) == []
    assert not mochi.attachments_path.exists()

    ollama.add_model("llava:7b", capabilities=["completion", "vision"])
    await api.patch(f"/sessions/{session_id}", {"model": "llava:7b"})
    ollama.reply(["A cat."])
    assert (await api.post(f"/chat/{session_id}", body)).status_code == 200
    await api.patch(f"/sessions/{session_id}", {"model": "qwen3:14b"})
    answer = await api.post(f"/chat/{session_id}")  # the question is answered again
    assert answer.json()["error"]["code"] == "IMAGES_NOT_SUPPORTED"
    ollama.reply(["No."])
    assert (await api.post(f"/chat/{session_id}", {"message": "Sure?"})).status_code == 200
    first = ollama.chats[-1]["messages"][0]
    assert first == {
        "role": "user",
        "content": "[Attachment: cat.png, image/png. You cannot see it.]\n\nWhat is this?",
    }


async def test_a_document_needs_a_provider_that_reads_it(api: Any, ollama: Any) -> None:
    ollama.add_model("llava:7b", capabilities=["completion", "vision"])
    session_id = await api.new_session(model="llava:7b")
    paper = {"data": encoded(PDF), "name": "paper.pdf"}
    answer = await api.post(f"/chat/{session_id}", {"message": "Read", "attachments": [paper]})
    assert (answer.status_code, answer.json()["error"]) == (
        415,
        {
            "code": "ATTACHMENT_UNSUPPORTED",
            "message": "The attachment 'paper.pdf' cannot be used: "
            "model 'llava:7b' reads no PDF files.",
            "details": {"name": "paper.pdf", "reason": "model 'llava:7b' reads no PDF files"},
        },
    )


async def test_images_count_for_the_window_and_not_as_characters(api: Any, ollama: Any) -> None:
    ollama.add_model("llava:7b", capabilities=["completion", "vision"], context_length=32_768)
    session_id = await api.new_session(model="llava:7b")
    images = [{"data": encoded(png() + bytes(each)), "name": "x.png"} for each in range(12)]
    ollama.reply(["Twelve cats."])
    body = {"message": "What is this?", "attachments": images}
    reply = (await api.post(f"/chat/{session_id}", body)).json()
    assert reply["context_window"]["current_window"] > 12_000


async def test_a_file_of_a_request_cannot_be_smuggled_in_by_a_session_file(
    api: Any, ollama: Any, mochi: Any
) -> None:
    session_id = await api.new_session()
    ollama.reply(["Hi."])
    await api.post(f"/chat/{session_id}", {"message": "Hello"})
    path = mochi.sessions_path / f"{session_id}.json"
    forged = '"files": [{"media_type": "image/png", "data": "AAAA", "name": null}], "role": "user"'
    path.write_text(path.read_text().replace('"role": "user"', forged, 1))
    ollama.reply(["Hi."])
    assert (await api.post(f"/chat/{session_id}", {"message": "Again"})).status_code == 200
    assert "images" not in ollama.chats[-1]["messages"][0]


async def test_test_mode_says_how_many_files_it_got(api: Any, settings: Any, mochi: Any) -> None:
    session_id = await api.new_session(model="test/lorem")
    body = {"message": "Look", "attachments": [IMAGE, {"data": encoded(PDF)}]}
    reply = (await api.post(f"/chat/{session_id}", body)).json()
    assert reply["message"]["content"].endswith("\n\nLook\n\n[files: 2]")
    plain = await api.new_session(model="test/lorem-plain")
    answer = await api.post(f"/chat/{plain}", body)
    assert answer.json()["error"]["code"] == "IMAGES_NOT_SUPPORTED"
