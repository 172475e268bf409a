"""The API of a vendor's wire: its paths, and its errors in the vendor's shape."""

from __future__ import annotations

from collections.abc import Mapping

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from ninja import NinjaAPI
from ninja.utils import replace_path_param_notation

from mochi_project.http.errors import PAYLOAD, checked, install
from mochi_project.http.json import ORJSONParser, ORJSONRenderer
from mochi_project.http.lazy_urls import Patterns
from mochi_project.http.wires import Wire
from mochi_project.runtime import get_runtime
from mochi_server.errors import InvalidRequest, JSONObject
from mochi_server.protocol.options import ModelOptions
from mochi_server.protocol.response_format import RESPONSE_FORMAT, ResponseFormat

SESSION = "X-Mochi-Session"
"""Header that names the session which a request continues, and the session of an answer."""


class WireAPI(NinjaAPI):
    """Ninja's API without a document: the vendor has one."""

    def __init__(self, name: str) -> None:
        super().__init__(
            urls_namespace=name,
            openapi_url=None,
            docs_url=None,
            parser=ORJSONParser(),
            renderer=ORJSONRenderer(),
        )
        install(self)

    def patterns(self, wire: Wire) -> Patterns:
        """Return the URLs of the wire.

        Raises:
            ImproperlyConfigured: the wire declares no right for one of its routes.
        """
        for route, view in self.default_router.path_operations.items():
            name = replace_path_param_notation(route.lstrip("/"))
            for method in {method for each in view.operations for method in each.methods}:
                if f"{method} {name}" not in wire.routes:
                    text = f"{method} {name} of the wire {wire.name!r} has no right."
                    raise ImproperlyConfigured(text)
        return self.urls[0]


def continues(*, is_kept: bool) -> bool:
    """Return whether a run goes on when its client leaves; without a session nobody has its end."""
    return is_kept and get_runtime().settings.on_disconnect == "continue"


def session_of(request: HttpRequest, metadata: Mapping[str, object] | None) -> str | None:
    """Return the session that a request continues: of its header, or ``metadata.session_id``.

    Raises:
        InvalidRequest: the metadata names something else.
    """
    if (header := request.headers.get(SESSION)) is not None:
        return header
    session_id = (metadata or {}).get("session_id")
    if session_id is not None and not isinstance(session_id, str):
        raise InvalidRequest("metadata.session_id must be a text.")
    return session_id


def options_of(values: JSONObject) -> ModelOptions:
    """Return the options of a model that a request names.

    Raises:
        InvalidRequest: one has a value that is not allowed.
    """
    return checked(ModelOptions.model_validate, values, *PAYLOAD)


def format_of(value: JSONObject | None, field: str) -> ResponseFormat | None:
    """Return the form that an answer must have; None for a text.

    Raises:
        InvalidRequest: it is none of the known ones.
    """
    if value is None or value.get("type") == "text":
        return None
    return checked(RESPONSE_FORMAT.validate_python, value, *PAYLOAD, field)
