"""``token add|list|revoke``: the tokens of the data folder, with a running server or without."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from mochi_project.management.console import as_json, duration, plain, table
from mochi_server.config import MochiServerSettings
from mochi_server.core.audit import AuditLog
from mochi_server.core.caller import COMMAND, RIGHTS, Caller, Right, set_caller
from mochi_server.core.tokens import AccessTokenFile, TokensUnusable

COLUMNS = ("NAME", "RIGHTS", "CREATED", "EXPIRES", "LAST USED")


class Command(BaseCommand):
    """Makes tokens, lists them and takes them back."""

    help = (
        "Makes, lists and revokes tokens with names and rights. A change holds at once, also in "
        "running servers. Of a token the data folder has the hash alone."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

        def action(name: str, text: str) -> argparse.ArgumentParser:
            return actions.add_parser(name, help=text, description=text)

        add = action("add", "Make a token, and print it: nothing can show it again.")
        add.add_argument("name", metavar="NAME", help="for people and logs: whose it is")
        add.add_argument(
            "--rights",
            type=_rights,
            required=True,
            metavar="RIGHTS",
            help=f"out of {','.join(RIGHTS)}; each includes read, and admin all",
        )
        add.add_argument(
            "--expires", type=duration, metavar="AGE", help="how long it is accepted: 90d, 12h"
        )
        listing = action("list", "List the tokens, without what they are.")
        listing.add_argument("--json", action="store_true", help="Print JSON.")
        revoke = action("revoke", "Take a token back.")
        revoke.add_argument("name", metavar="NAME")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        """Run the action.

        Raises:
            CommandError: It is not possible; the text says why.
        """
        mochi: MochiServerSettings = settings.MOCHI
        file = AccessTokenFile(mochi.tokens_path, mochi.token_use_path)
        set_caller(Caller(name=COMMAND))
        audit = AuditLog(mochi.audit_path, mochi.audit_lock_path)
        try:
            match options["action"]:
                case "add":
                    self._add(file, audit, options["name"], options["rights"], options["expires"])
                case "revoke":
                    self._revoke(file, audit, options["name"])
                case _:
                    self._list(file, is_json=options["json"])
        except TokensUnusable as error:
            raise CommandError(f"{file.path} cannot be used: {error}.") from error
        except OSError as error:
            raise CommandError(f"{file.path} cannot be written: {error.strerror}.") from error
        except ValueError as error:
            raise CommandError(f"{plain(str(error))}.") from error

    def _add(
        self,
        file: AccessTokenFile,
        audit: AuditLog,
        name: str,
        rights: Sequence[Right],
        lifetime: timedelta | None,
    ) -> None:
        is_first = not file.path.exists()
        try:
            token = file.add(name, rights, lifetime=lifetime)
        except OverflowError as error:
            raise CommandError("--expires is later than any calendar ends.") from error
        audit.record_now("add token", name=name, rights=",".join(rights))
        self.stderr.write(f"The token of {name}; it is shown this once:")
        self.stdout.write(token)
        if is_first:
            self.stderr.write("From now on the server demands a token of every request.")

    def _revoke(self, file: AccessTokenFile, audit: AuditLog, name: str) -> None:
        left = file.revoke(name)
        if left is None:
            raise CommandError(plain(f"There is no token {name!r}."))
        audit.record_now("revoke token", name=name)
        self.stdout.write(f"Revoked {name}.")
        if not left:
            self.stderr.write(
                f"None is left, and one is still demanded. For none: remove {file.path}, and start "
                "the server again."
            )

    def _list(self, file: AccessTokenFile, *, is_json: bool) -> None:
        tokens = [token.shown(file.last_used(token.name)) for token in file.load()]
        if is_json:
            self.stdout.write(as_json({"tokens": tokens}))
        elif not tokens:
            self.stdout.write(plain(f"No tokens in {file.path}."))
        else:
            self.stdout.write(
                table(
                    [
                        [
                            token["name"],
                            ",".join(cast("list[str]", token["rights"])),
                            token["created_at"],
                            "expired" if token["expired"] else token["expires_at"],
                            token["last_used_at"],
                        ]
                        for token in tokens
                    ],
                    COLUMNS,
                )
            )


def _rights(text: str) -> list[Right]:
    """Read rights, separated by commas; ``type=`` of an option."""
    named = [name.strip() for name in text.split(",")]
    if unknown := [name for name in named if name not in RIGHTS]:
        known = ", ".join(RIGHTS)
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no right; the rights are {known}")
    return [right for right in RIGHTS if right in named]
