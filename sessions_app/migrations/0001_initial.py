"""The tables of sessions."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """Makes the tables of sessions, and of their changes."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="SessionChange",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("collection", models.CharField(max_length=32)),
                ("slot", models.PositiveSmallIntegerField()),
                ("version", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("collection", "slot"), name="mochi_change_of_collection"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="StoredSession",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("collection", models.CharField(max_length=32)),
                ("session_id", models.CharField(max_length=64)),
                ("version", models.BigIntegerField(null=True)),
                ("modified", models.DateTimeField(null=True)),
                ("lock", models.CharField(default="", max_length=16)),
                ("lock_until", models.DateTimeField(null=True)),
                ("claim", models.CharField(default="", max_length=16)),
                ("claim_until", models.DateTimeField(null=True)),
                ("content", models.BinaryField(default=b"")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("collection", "session_id"), name="mochi_session_of_collection"
                    )
                ],
            },
        ),
    )
