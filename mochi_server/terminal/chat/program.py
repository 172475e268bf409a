"""The loop of prompt and answer."""

from __future__ import annotations

from ..ask import first_model, last_session
from ..client import Client, RequestRefused, ServerUnreachable
from .commands import SlashCommands, SlashCompleter
from .conversation import TerminalConversation
from .keyboard import Interrupted, Keyboard, Left
from .screen import Screen


async def chat(client: Client, *, session_id: str | None, model: str | None, last: bool) -> None:
    """Chat until the person leaves.

    Args:
        client: Connection to the server.
        session_id: Session to go on with; None: a new one.
        model: Model to use; None: the session's, or the first that the server lists.
        last: Go on with the session that changed last.

    Raises:
        NothingThere: No model is named, and the server has none.
        RequestRefused: There is no such session or model.
        ServerUnreachable: The server went away.
    """
    screen, completer = Screen(), SlashCompleter()
    keyboard = Keyboard(completer)
    conversation = TerminalConversation(client, screen, keyboard)
    commands = SlashCommands(conversation, completer)
    with keyboard.quiet():
        if last:
            session_id = await last_session(client)
        try:
            if session_id is not None:
                await conversation.open(session_id)
                if model is not None:
                    await conversation.change({"model": model})
            conversation.model = model or conversation.model or await first_model(client)
            if session_id is None:
                screen.note(f"{conversation.model} · /help lists the commands")
            while True:
                screen.line()
                text = await keyboard.message(conversation.draft)
                conversation.draft = ""
                await _react(conversation, commands, text)
        except Left:
            await conversation.leave_session()


async def _react(conversation: TerminalConversation, commands: SlashCommands, text: str) -> None:
    try:
        if text.startswith("/"):
            await commands.run(text)
        elif text.strip():
            await conversation.send({"message": text})
    except (RequestRefused, ServerUnreachable) as error:
        conversation.screen.error(str(error))
    except Interrupted:
        conversation.screen.line()
