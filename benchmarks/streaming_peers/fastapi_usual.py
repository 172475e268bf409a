"""Peer (b): the same job as it is usually written: FastAPI, sse-starlette, ``ollama.AsyncClient``.

One thing is better than usual: httpx's limit of 100 connections is lifted, without which the 101st
stream waits for one of the others to end.
"""

import json
import os
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

import httpx
import ollama
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from sse_starlette import EventSourceResponse

FOLDER = Path(os.environ["BENCH_FOLDER"])
client = ollama.AsyncClient(
    host=os.environ["BENCH_UPSTREAM"], limits=httpx.Limits(max_connections=None)
)
app = FastAPI()


def now() -> str:
    return datetime.now(timezone.utc).isoformat()


def new_id() -> str:
    return uuid.uuid4().hex[:10]


class Message(BaseModel):
    role: Literal["system", "user", "assistant", "tool"]
    content: str
    model: str | None = None
    eval_count: int | None = None
    prompt_eval_count: int | None = None
    message_id: str = Field(default_factory=new_id)
    timestamp: str = Field(default_factory=now)


class Metadata(BaseModel):
    session_id: str = Field(default_factory=new_id)
    model: str
    created_at: str = Field(default_factory=now)
    updated_at: str = Field(default_factory=now)
    message_count: int = 0
    format_version: str = "1.3"


class Session(BaseModel):
    metadata: Metadata
    messages: list[Message] = []

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self.metadata.message_count = len(self.messages)
        self.metadata.updated_at = now()
        self.save()

    def save(self) -> None:
        path = FOLDER / f"{self.metadata.session_id}.json"
        with path.open("w") as file:
            json.dump(self.model_dump(), file, indent=2)


class CreateSession(BaseModel):
    model: str


class ChatRequest(BaseModel):
    message: str
    think: bool = False


class ContentDelta(BaseModel):
    content: str
    role: str = "assistant"


def load(session_id: str) -> Session:
    path = FOLDER / f"{session_id}.json"
    if not path.exists():
        raise HTTPException(404, "session not found")
    with path.open() as file:
        return Session.model_validate(json.load(file))


@app.post("/api/v1/sessions", status_code=201)
async def create_session(request: CreateSession) -> Metadata:
    session = Session(metadata=Metadata(model=request.model))
    session.save()
    return session.metadata


@app.post("/api/v1/chat/{session_id}/stream")
async def stream_chat(session_id: str, request: ChatRequest) -> EventSourceResponse:
    session = load(session_id)
    model = session.metadata.model
    session.add(Message(role="user", content=request.message))

    async def events():
        content = ""
        messages = [{"role": m.role, "content": m.content} for m in session.messages]
        async for chunk in await client.chat(
            model=model, messages=messages, stream=True, think=request.think
        ):
            if chunk.message.content:
                content += chunk.message.content
                delta = ContentDelta(content=chunk.message.content)
                yield {"event": "content_delta", "data": delta.model_dump_json()}
            if chunk.done:
                message = Message(
                    role="assistant",
                    content=content,
                    model=model,
                    eval_count=chunk.eval_count,
                    prompt_eval_count=chunk.prompt_eval_count,
                )
                session.add(message)
                yield {"event": "message_complete", "data": message.model_dump_json()}
        yield {"event": "done", "data": json.dumps({"session_id": session_id})}

    return EventSourceResponse(events())
