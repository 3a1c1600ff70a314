"""
Plain views that move objects and catch nothing.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import path

from django_logic.exceptions import (
    AlreadyInProgress,
    InvalidTransition,
    TransitionForbidden,
    TransitionNotAllowed,
    TransitionTemporarilyUnavailable,
    UnknownAction,
)
from tests.app.models import Order, Sale, Ticket

RAISED = {
    error.__name__: error
    for error in (
        AlreadyInProgress,
        InvalidTransition,
        TransitionForbidden,
        TransitionNotAllowed,
        TransitionTemporarilyUnavailable,
        UnknownAction,
        PermissionDenied,
        Order.DoesNotExist,
        ValueError,
    )
}


def user_of(request: HttpRequest) -> Any:
    """
    Return who asks by a header, so that no session is needed; nobody is a call by the system.
    """
    name = request.headers.get("Asker")
    return User(username=name, is_staff=name == "boss") if name else None


def run(request: HttpRequest, key: int, action: str) -> HttpResponse:
    """
    Run an action of an order.
    """
    order = Order.objects.get(pk=key)
    moved = getattr(order.process, action)(user=user_of(request))
    return JsonResponse({"moved": moved, "state": order.status})


def write_and_run(request: HttpRequest, key: int, action: str) -> HttpResponse:
    """
    Write something of the view's own, then run an action.
    """
    Order.objects.create(note="written by the view")
    return run(request, key, action)


async def run_async(request: HttpRequest, key: int, action: str) -> HttpResponse:
    """
    Run an action of an order from async code.
    """
    order = await Order.objects.aget(pk=key)
    moved = await order.process.atransition(action, user=user_of(request))
    return JsonResponse({"moved": moved, "state": order.status})


def move(request: HttpRequest, key: int, target: str) -> HttpResponse:
    """
    Move a sale to a state.
    """
    version = request.headers.get("If-Match")
    sale = Sale.objects.get(pk=key)
    moved = sale.transition_to(target, expected_version=None if version is None else int(version))
    return JsonResponse({"moved": moved})


def flow(request: HttpRequest, key: int, action: str) -> HttpResponse:
    """
    Run an action of whatever process a test has bound to a ticket.
    """
    getattr(Ticket.objects.get(pk=key).flow, action)(user=user_of(request))
    return HttpResponse()


def raised(request: HttpRequest, name: str) -> HttpResponse:
    """
    Raise an exception by hand.
    """
    raise RAISED[name]("Order 7 cannot move <b>fulfilled</b> → draft")


def rendered_late(request: HttpRequest, key: int) -> HttpResponse:
    """
    Run an action while the answer is rendered.
    """
    answer = TemplateResponse(request, "unused.html")
    answer.resolve_template = lambda _name: LateTemplate(key)  # type: ignore[method-assign,assignment]
    return answer


class LateTemplate:
    """
    A template that moves an order.
    """

    def __init__(self, key: int) -> None:
        self.key = key

    def render(self, context: Any, request: HttpRequest) -> str:
        """
        Run an action that is refused.
        """
        return str(Order.objects.get(pk=self.key).process.approve())


urlpatterns = [
    path("run/<int:key>/<str:action>/", run),
    path("write/<int:key>/<str:action>/", write_and_run),
    path("async/<int:key>/<str:action>/", run_async),
    path("move/<int:key>/<str:target>/", move),
    path("flow/<int:key>/<str:action>/", flow),
    path("raised/<str:name>/", raised),
    path("late/<int:key>/", rendered_late),
]
