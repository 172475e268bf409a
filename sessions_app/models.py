"""The tables of the database storage; without ``MOCHI_DATABASE_URL`` nothing uses them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class StoredSession(models.Model):
    """A session, with the leases of those who edit it or have their turn in it.

    A row without a version has leases only: nothing is stored there, or no longer.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.CharField(max_length=32)
    """Whose sessions: ``sessions`` of people, ``agent_chats`` of agents."""
    session_id = models.CharField(max_length=64)
    version = models.BigIntegerField(null=True)
    """A random number that each write chooses, by which it also knows that it has been done."""
    modified = models.DateTimeField(null=True)
    lock = models.CharField(max_length=16, default="")
    """Token of the edit that holds or held the lock."""
    lock_until = models.DateTimeField(null=True)
    claim = models.CharField(max_length=16, default="")
    """Token of the last claim. It stays when the claim has ended: who has an older one must not
    write."""
    claim_until = models.DateTimeField(null=True)
    content = models.BinaryField(default=b"")
    objects: ClassVar[models.Manager[StoredSession]] = models.Manager()

    class Meta:  # noqa: D106 - Django's
        constraints = (
            models.UniqueConstraint(
                fields=("collection", "session_id"), name="mochi_session_of_collection"
            ),
        )

    def __str__(self) -> str:
        return f"{self.collection}/{self.session_id}"


class SessionChange(models.Model):
    """The last change of a part of a collection.

    A list checks the sessions only if one of these has changed. There are several for each
    collection, because a write locks its row until it is committed.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.CharField(max_length=32)
    slot = models.PositiveSmallIntegerField()
    version = models.BigIntegerField()
    objects: ClassVar[models.Manager[SessionChange]] = models.Manager()

    class Meta:  # noqa: D106 - Django's
        constraints = (
            models.UniqueConstraint(
                fields=("collection", "slot"), name="mochi_change_of_collection"
            ),
        )

    def __str__(self) -> str:
        return f"{self.collection}/{self.slot}"
