"""``manage.py runserver``: a development server that speaks ASGI, and so streams.

Django's own speaks WSGI and keeps a stream back until it is over.
"""

from __future__ import annotations

import argparse
import os
from contextlib import suppress
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.urls import get_resolver
from django.utils import autoreload

from mochi_server.server.http_protocol import http_protocol
from mochi_server.server.startup import CannotStart, listen


class Command(BaseCommand):
    """Serves with automatic reload."""

    help = "Serves the API for development: ASGI, reloading when a file changes."
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("addrport", nargs="?", help="PORT or HOST:PORT")
        parser.add_argument("--noreload", action="store_true", help="Do not watch the files.")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        host, port = self._address(options["addrport"])
        if options["noreload"]:
            self.serve(host, port)
            return
        if os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true":  # noqa: TID251 - Django's
            # Two threads would import now, and could wait for one another.
            with suppress(Exception):  # the checks say what is wrong with it
                get_resolver().url_patterns  # noqa: B018 - imports
        autoreload.run_with_reloader(self.serve, host, port)

    def _address(self, address: str | None) -> tuple[str, int]:
        host, port = settings.MOCHI.host, settings.MOCHI.port
        if address is None:
            return host, port
        before, _, last = address.rpartition(":")
        if not last.isdigit():
            raise CommandError(f"{address!r} is neither PORT nor HOST:PORT.")
        return before or host, int(last)

    def serve(self, host: str, port: int) -> None:
        """Serve; with reload, in a thread that ends with its process."""
        self.check(display_num_errors=True)
        try:
            sock = listen(host, port)
        except CannotStart as error:
            raise CommandError(str(error)) from error
        name, number = sock.getsockname()[:2]
        self.stdout.write(f"Development server at http://{name}:{number}/api/v1/docs\n")
        self.stdout.flush()
        config = uvicorn.Config(
            "mochi_project.asgi:application",
            http=http_protocol(settings.MOCHI),
            lifespan="on",
            log_config=None,
            server_header=False,
            proxy_headers=bool(settings.MOCHI.trusted_proxies),
            forwarded_allow_ips=settings.MOCHI.trusted_proxies,
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run(sockets=[sock])
