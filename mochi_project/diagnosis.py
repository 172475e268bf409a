"""What the doctor examines: a runtime of its own, and what only Django knows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from weakref import WeakKeyDictionary

from django.conf import settings
from django.core.checks import ERROR, CheckMessage
from django.core.exceptions import ImproperlyConfigured

from mochi_server.core.aio import in_daemon_thread
from mochi_server.core.outages import first_line
from mochi_server.core.single_flight import CachedResult
from mochi_server.doctor.findings import Check, Finding, error, note, ok, warning
from mochi_server.doctor.run import DoctorReport, diagnose
from mochi_server.runtime import Runtime
from mochi_server.server.startup import storage_package_problem
from mochi_server.sessions.storage.base import SessionStorage

from .checks import check_backends, check_processes
from .databases import place_of_database
from .runtime import InvalidBackend, ProviderHandler, StorageHandler
from .storages import DATABASE_STORAGE

_reports: WeakKeyDictionary[Runtime, CachedResult[DoctorReport]] = WeakKeyDictionary()


async def report_on(runtime: Runtime) -> DoctorReport:
    """Examine a server that runs; those who ask meanwhile get the same report."""

    async def examine() -> DoctorReport:
        return await diagnose(runtime_to_check(runtime.storages), CHECKS_OF_DJANGO)

    if runtime not in _reports:
        _reports[runtime] = CachedResult(
            examine, tasks=runtime.background, fresh_seconds=0, name="doctor"
        )
    return await _reports[runtime].read()


def runtime_to_check(storages: Mapping[str, SessionStorage] | None = None) -> Runtime:
    """Build a runtime with the backends of the settings; with the usual ones if those are wrong."""
    backends = {alias: dict(each) for alias, each in settings.MOCHI_SESSION_STORAGES.items()}
    for each in backends.values():
        if each.get("BACKEND") == DATABASE_STORAGE:  # it makes missing tables; this changes nothing
            each["OPTIONS"] = {**each.get("OPTIONS", {}), "migrate": False}
    try:
        return Runtime(
            settings.MOCHI,
            providers=dict(ProviderHandler()),
            storages=dict(StorageHandler(backends)) if storages is None else storages,
        )
    except (InvalidBackend, KeyError):  # the check of the backends says it
        return Runtime(settings.MOCHI)


async def check_shared_backends(_: Runtime) -> list[Finding]:
    return [_finding_of(message) for message in (*check_backends(), *check_processes())]


async def check_django(_: Runtime) -> list[Finding]:
    """Find Django settings that open the server to others; ours never set them."""
    findings = []
    if getattr(settings, "CORS_ALLOW_ALL_ORIGINS", False):
        text = "CORS_ALLOW_ALL_ORIGINS is set: every web page may use this server."
        findings.append(warning(text, "Name the pages in MOCHI_CORS_ORIGINS instead."))
    if settings.DEBUG:
        text = "DEBUG is set: errors show the insides of the server, and memory grows."
        findings.append(warning(text, "Take it out of the Django settings."))
    return findings


async def check_database(_: Runtime) -> list[Finding]:
    mochi = settings.MOCHI
    if mochi.session_storage != "database":
        return []
    if storage_package_problem(mochi) is not None:  # the check of the processes says it
        return []
    return [await in_daemon_thread(_database_finding)]


def _database_finding() -> Finding:
    from django.db import Error, connection  # noqa: PLC0415 - most have no database

    from sessions_app.backends.migrating import unapplied_migrations  # noqa: PLC0415

    place = place_of_database(connection.settings_dict)
    try:
        began = time.monotonic()
        with closing(connection):
            missing = unapplied_migrations(connection)
            milliseconds = (time.monotonic() - began) * 1000
    except (Error, ImproperlyConfigured) as failed:
        return error(
            f"The database {place} cannot be used: {first_line(failed)}",
            "Start it or correct MOCHI_DATABASE_URL. A server starts without it, and has no "
            "sessions until it is there.",
        )
    if missing:
        return note(
            f"The database {place} lacks {', '.join(missing)}.",
            "Start a server, which makes its tables, or run manage.py migrate as a user who may.",
        )
    return ok(f"The database {place} answers in {milliseconds:.0f} ms; its tables are complete.")


CHECKS_OF_DJANGO = (
    Check(topic="sessions", run=check_database),
    Check(topic="security", run=check_django),
    Check(topic="several processes", run=check_shared_backends),
)


def _finding_of(message: CheckMessage) -> Finding:
    level = error if message.level >= ERROR else warning
    return level(f"{message.msg} ({message.id})", message.hint or "See docs/reference/checks.md.")
