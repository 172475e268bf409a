"""The tables of the state that processes share."""

from __future__ import annotations

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from sessions_app.backends.state import LeasedStatements


def make_tables(_: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Make them where they can be used: the state is on each machine with another database."""
    if editor.connection.vendor == "postgresql":
        LeasedStatements(editor.connection.alias).create()


class Migration(migrations.Migration):
    """Makes tables for rows, lines, their version and who holds them, as the library has them."""

    dependencies = (("sessions_app", "0001_initial"),)
    operations = (migrations.RunPython(make_tables, migrations.RunPython.noop),)
