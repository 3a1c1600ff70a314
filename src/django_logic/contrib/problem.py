"""
A refusal as an HTTP answer: `ConflictMiddleware` for plain Django views, and its parts for anything else.

The answer is a page for people or RFC 9457 ``application/problem+json`` for programs, by the request's ``Accept``.
What a refusal means is decided in `django_logic.exceptions`; nothing here judges.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, ClassVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.http.request import MediaType
from django.template import TemplateDoesNotExist
from django.template.loader import get_template
from django.utils.cache import add_never_cache_headers, patch_vary_headers
from django.utils.html import format_html
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _

from django_logic.exceptions import (
    AlreadyInProgress,
    InvalidTransition,
    Text,
    TransitionForbidden,
    TransitionNotAllowed,
    TransitionTemporarilyUnavailable,
    UnknownAction,
)
from django_logic.states import plain

__all__ = ["CONTENT_TYPE", "TEMPLATE", "ConflictMiddleware", "prefers_html", "problem_body", "problem_response"]

CONTENT_TYPE = "application/problem+json"
#: The page; a project's template of the same name takes its place.
TEMPLATE = "django_logic/refusal.html"
JSON_TYPES = (CONTENT_TYPE, "application/json")
HTML_TYPES = ("text/html", "application/xhtml+xml")

#: What kind of problem a code is, in a few words that fit every occurrence.
TITLES: Mapping[str, Text] = {
    "permission": _("Not permitted"),
    "condition": _("A condition is not met"),
    "source_state": _("Not possible in this state"),
    "unknown_action": _("Unknown action"),
    "locked": _("Busy"),
    "background_in_flight": _("Work is still running"),
    "background_stranded": _("Work has stopped"),
    "ambiguous": _("More than one way leads on"),
    "stale_version": _("Out of date"),
    "moved": _("Changed in the meantime"),
    "duplicate": _("Done already"),
}

#: The code of a refusal that was raised by hand, without reasons; subclasses first.
CODE_BY_CLASS: tuple[tuple[type[TransitionNotAllowed], str], ...] = (
    (AlreadyInProgress, "background_in_flight"),
    (TransitionTemporarilyUnavailable, "locked"),
    (TransitionForbidden, "permission"),
    (UnknownAction, "unknown_action"),
    (InvalidTransition, "source_state"),
)

#: Refusals that tell nothing of the object: whoever got them was denied, or was refused before permissions were asked.
SILENT_STATUSES = frozenset({403, 404, 412, 503})

#: Seconds after which asking again makes sense; a lock is held for a moment, background work for longer.
RETRY_AFTER = {"locked": 1}
RETRY_AFTER_WORK = 10


class ConflictMiddleware:
    """
    Answer a refusal that a view did not catch: 409 and its kin instead of a server error.

    Works for sync and async views. Transaction: with ATOMIC_REQUESTS the view's own is rolled back before.
    """

    sync_capable: ClassVar[bool] = True
    async_capable: ClassVar[bool] = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """
        Answer a refusal; leave any other exception to Django.
        """
        if not isinstance(exception, TransitionNotAllowed):
            return None
        return problem_response(request, exception)


def problem_response(request: HttpRequest, error: TransitionNotAllowed) -> HttpResponse:
    """
    Turn a refusal into the answer the client accepts: a page, or problem+json.
    """
    body = problem_body(error)
    status = body["status"]
    if prefers_html(request):
        response = HttpResponse(page(request, body), status=status)
    else:
        response = JsonResponse(body, status=status, content_type=CONTENT_TYPE)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response["Retry-After"] = str(RETRY_AFTER.get(body["code"], RETRY_AFTER_WORK))
    add_never_cache_headers(response)
    patch_vary_headers(response, ["Accept"])
    return response


def problem_body(error: TransitionNotAllowed) -> dict[str, Any]:
    """
    Describe a refusal as RFC 9457 problem details.

    Shape: plain data that JSON can hold, without ``current_state`` and ``available_actions`` where they are no business
    of the caller's.
    """
    code = code_of(error)
    status = error.http_status
    body: dict[str, Any] = {
        "type": f"urn:problem-type:django-logic:{code}" if code else "about:blank",
        "title": str(TITLES.get(code or "", HTTPStatus(status).phrase)),
        "status": status,
        "detail": str(error.user_message),
        "code": code,
        "action": error.action,
        "reasons": [{"code": str(reason.code), "message": str(reason.message)} for reason in error.reasons],
    }
    if status not in SILENT_STATUSES:
        state = plain(error.current_state)
        body["current_state"] = state if state is None or isinstance(state, (str, int)) else str(state)
        body["available_actions"] = error.available_actions
    return body


def code_of(error: TransitionNotAllowed) -> str | None:
    """
    Return the code of a refusal, None for one that was raised by hand and says nothing about its kind.
    """
    if error.reason is not None:
        return str(error.reason)
    return next((code for kind, code in CODE_BY_CLASS if isinstance(error, kind)), None)


def page(request: HttpRequest, body: Mapping[str, Any]) -> str:
    """
    Write the page, from the project's template or ours; in plain words where no engine finds either.
    """
    language = get_language() or "en"
    try:
        template = get_template(TEMPLATE)
    except (TemplateDoesNotExist, ImproperlyConfigured):
        return format_html(
            '<!doctype html><html lang="{}"><head><meta charset="utf-8"><title>{}</title></head>'
            "<body><h1>{}</h1><p>{}</p></body></html>",
            language,
            body["title"],
            body["title"],
            body["detail"],
        )
    return str(template.render({"problem": body, "language": language}, request))


def prefers_html(request: HttpRequest) -> bool:
    """
    Tell whether the client would rather read a page than JSON; one that takes anything gets JSON.
    """
    ranges = [MediaType(text) for text in request.headers.get("Accept", "").split(",") if text.strip()]
    return rank(ranges, HTML_TYPES) > rank(ranges, JSON_TYPES)


def rank(ranges: Sequence[MediaType], offers: tuple[str, ...]) -> tuple[float, int, int]:
    """
    Return how welcome the best of these media types is: by quality, then how exactly it is named, then how early.
    """
    return max(rank_one(ranges, offer) for offer in offers)


def rank_one(ranges: Sequence[MediaType], offer: str) -> tuple[float, int, int]:
    """
    Return how welcome a media type is; of the ranges that match, the most specific one counts, a quality of 0 too.
    """
    matching = [
        ((entry.main_type != "*") + (entry.sub_type != "*"), -place, str(entry.params.get("q", "1")))
        for place, entry in enumerate(ranges)
        if entry.match(offer)
    ]
    if not matching:
        return 0.0, 0, 0
    specificity, earliness, quality = max(matching)
    weight = weight_of(quality)
    return (weight, specificity, earliness) if weight else (0.0, 0, 0)


def weight_of(quality: str) -> float:
    """
    Return a quality as a number; one that is none counts as 1, as it does in Django.
    """
    try:
        weight = float(quality)
    except ValueError:
        return 1.0
    return weight if 0 <= weight <= 1 else 1.0
