"""A session as one HTML page that needs nothing else: no script, no other file, no network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Final

from ...core.media import media_type_of
from ...errors import JSONObject
from ...protocol.messages import AssistantMessage, Message, ToolMessage
from ..attachments import attachments_of
from ..session import ChatSession
from .markdown import FENCE, name_and_arguments, one_line
from .training import OTHER, data_url

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a browser may load; a second wall behind the escaping."""

_CODE = re.compile(r"`([^`\n]+)`")
_STYLE = """
:root { color-scheme: light dark; --text: #1c1f23; --soft: #5b6470; --page: #ffffff;
  --user: #eef3fb; --code: #f4f5f7; --line: #d9dee5; --accent: #2b5fb3; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e3e6ea; --soft: #9aa4b1; --page: #15181c; --user: #1e2835;
    --code: #1d2126; --line: #343b44; --accent: #7fb0ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 1rem/1.6 system-ui, sans-serif; overflow-wrap: anywhere; }
main { max-width: 48rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; margin: 0 0 1.5rem;
  color: var(--soft); font-size: .875rem; }
dd { margin: 0; }
article { margin: 1.25rem 0; padding-top: 1.25rem; border-top: 1px solid var(--line); }
article.user { background: var(--user); border: 0; border-radius: .75rem; padding: .75rem 1rem; }
h2 { font-size: .8125rem; font-weight: 600; color: var(--soft); margin: 0 0 .25rem; }
h2 time { font-weight: 400; margin-inline-start: .5rem; }
p { white-space: pre-wrap; margin: 0 0 .75rem; unicode-bidi: plaintext; }
p:last-child { margin-bottom: 0; }
code, pre { font-family: ui-monospace, monospace; font-size: .875em; background: var(--code); }
code { padding: .1em .3em; border-radius: .25rem; }
pre { padding: .75rem; border-radius: .5rem; overflow-x: auto; margin: 0 0 .75rem;
  white-space: pre-wrap; }
pre code { padding: 0; background: none; font-size: 1em; }
details { border-inline-start: 3px solid var(--line); padding-inline-start: .75rem;
  margin: 0 0 .75rem; color: var(--soft); }
summary { cursor: pointer; }
details > p, details > pre { margin-top: .5rem; color: var(--text); }
img { display: block; max-width: 100%; height: auto; border-radius: .5rem; margin: 0 0 .75rem; }
a { color: var(--accent); }
@media print { details::details-content { content-visibility: visible; } }
"""


def as_html(session: ChatSession, files: Mapping[str, bytes]) -> str:
    """Return the page.

    ``files``: its attachments, by their ids; those that are missing are only named.
    """
    metadata = session.metadata
    title = escape(one_line(metadata.title or session.preview or session.session_id))
    parts = [
        f'<!doctype html>\n<html>\n<head>\n<meta charset="utf-8">\n<title>{title}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">',
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>",
        f'<h1 dir="auto">{title}</h1>',
        *_facts(session),
    ]
    if metadata.summary is not None:
        parts += _text(metadata.summary.summary)
    for message in session.messages:
        parts += _article(message, files)
    return "\n".join([*parts, "</main>\n</body>\n</html>\n"])


def _facts(session: ChatSession) -> Iterator[str]:
    metadata = session.metadata
    facts = {
        "Model": metadata.model,
        "Created": _minute(metadata.created_at),
        "Changed": _minute(metadata.updated_at),
        "Tags": ", ".join(metadata.tags),
    }
    yield "<dl>"
    for name, value in facts.items():
        if value:
            yield f"<dt>{name}</dt><dd>{escape(one_line(value))}</dd>"
    yield "</dl>"


def _article(message: Message, files: Mapping[str, bytes]) -> Iterator[str]:
    kind = message.role if message.role in {"user", "assistant", "tool", "system"} else "other"
    time = getattr(message, "timestamp", None)
    when = f"<time>{escape(_minute(time))}</time>" if isinstance(time, str) else ""
    yield f'<article class="{kind}">\n<h2>{escape(_heading(message))}{when}</h2>'
    if isinstance(message, AssistantMessage) and message.thinking:
        yield "<details><summary>Thinking</summary>"
        yield from _text(message.thinking)
        yield "</details>"
    for entry in attachments_of(message.as_stored()):
        yield _attachment(entry, files)
    if isinstance(message, ToolMessage):
        yield f"<details><summary>Result</summary>{_pre(message.text)}</details>"
    else:
        yield from _text(message.text)
    if isinstance(message, AssistantMessage):
        yield from map(_call, message.tool_calls or [])
        if message.interrupted:
            yield "<p><em>The reply was cut off.</em></p>"
    yield "</article>"


def _heading(message: Message) -> str:
    match message:
        case AssistantMessage():
            return one_line(f"Assistant · {message.model}" if message.model else "Assistant")
        case ToolMessage():
            return one_line(f"Tool · {message.tool_name or 'unknown'}")
        case _:
            return one_line(message.role).capitalize()


def _call(call: JSONObject) -> str:
    name, arguments = name_and_arguments(call)
    called = f"<summary>Calls <code>{escape(name)}</code></summary>"
    return f"<details>{called}{_pre(arguments)}</details>"


def _attachment(entry: JSONObject, files: Mapping[str, bytes]) -> str:
    name = escape(one_line(str(entry.get("name") or entry.get("media_type") or "file")))
    content = files.get(str(entry["attachment_id"]))
    if content is None:
        return f"<p>Attachment: {name}</p>"
    kind = media_type_of(content)
    if kind is not None and kind.startswith("image/"):
        return f'<img src="{data_url(content, kind)}" alt="{name}">'
    return f'<p>Attachment: <a download="{name}" href="{data_url(content, OTHER)}">{name}</a></p>'


def _text(text: str) -> Iterator[str]:
    """Yield the paragraphs and blocks of code of a text in Markdown."""
    prose: list[str] = []
    code: list[str] | None = None
    fence = ""
    for line in text.split("\n"):
        mark = FENCE.fullmatch(line)
        if code is not None:
            if mark is not None and mark[1].startswith(fence) and not mark[2].strip():
                yield _pre("\n".join(code))
                code = None
            else:
                code.append(line)
        elif mark is not None and (mark[1][0] == "~" or "`" not in mark[2]):
            yield from _paragraph(prose)
            prose, code, fence = [], [], mark[1]
        else:
            prose.append(line)
    if code is not None:
        yield _pre("\n".join(code))
    yield from _paragraph(prose)


def _paragraph(lines: list[str]) -> Iterator[str]:
    if text := "\n".join(lines).strip("\n"):
        marked_up = _CODE.sub(r"<code>\1</code>", escape(text))
        yield f'<p dir="auto">{marked_up}</p>'


def _pre(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")
