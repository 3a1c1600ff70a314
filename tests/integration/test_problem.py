"""
Promises of `django_logic.contrib.problem`: a refusal that a view does not catch becomes an HTTP answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import PermissionDenied
from django.db import connections
from django.http import HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.utils import translation

from django_logic import Transition
from django_logic.contrib.problem import ConflictMiddleware, prefers_html, problem_body, problem_response
from django_logic.exceptions import InvalidTransition, TransitionNotAllowed
from tests.app.models import Item, Order, Product, Sale, Ticket
from tests.flows import Bind, declare, moves, stored, write_catalogue

PROBLEM = "application/problem+json"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
URN = "urn:problem-type:django-logic:"

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def web(settings: Any) -> None:
    """
    Serve the views of this folder with nothing but the middleware.
    """
    settings.ROOT_URLCONF = "tests.integration.problem_urls"
    settings.MIDDLEWARE = ["django_logic.contrib.problem.ConflictMiddleware"]


@pytest.fixture
def order() -> Order:
    """
    Give an order whose only item is out of stock.
    """
    order = Order.objects.create()
    Item.objects.create(order=order, product=Product.objects.create(name="lamp", stock=0))
    return order


def answer(path: str, **headers: str) -> Any:
    """
    Post and read the problem.
    """
    response: Any = Client().post(path, headers=headers)
    assert response["Content-Type"] == PROBLEM
    response.problem = json.loads(response.content)
    assert response.problem["status"] == response.status_code
    return response


@async_to_sync
async def posted_async(path: str) -> Any:
    """
    Post the way an ASGI server would.
    """
    return await AsyncClient().post(path)


def test_undeclared_move_is_a_conflict_that_says_what_is_possible(order: Order) -> None:
    """
    A move the present state does not allow is a 409 with the state, the reasons and what could be done instead.
    """
    Order.objects.filter(pk=order.pk).update(status="cancelled")

    refused = answer(f"/run/{order.pk}/approve/")

    assert refused.status_code == 409
    assert refused.problem == {
        "type": f"{URN}source_state",
        "title": "Not possible in this state",
        "status": 409,
        "detail": "This is not possible in the present state.",
        "code": "source_state",
        "action": "approve",
        "reasons": [{"code": "source_state", "message": "This is not possible in the present state."}],
        "current_state": "cancelled",
        "available_actions": [],
    }
    assert stored(order, "status") == "cancelled"


def test_undeclared_move_by_target_is_a_conflict() -> None:
    """
    The seed's case: a sale that is fulfilled can't be cancelled, and the caller is out of date.
    """
    sale = Sale.objects.create(status="processing")

    refused = answer(f"/move/{sale.pk}/draft/")

    assert refused.status_code == 409
    assert refused.problem["current_state"] == "processing"
    assert refused.problem["available_actions"] == ["to_cancelled", "to_fulfilled"]


def test_failed_condition_is_unprocessable(order: Order) -> None:
    """
    A condition that says no is a 422 that names what is possible still.
    """
    refused = answer(f"/run/{order.pk}/approve/", Asker="boss")

    assert (refused.status_code, refused.problem["code"]) == (422, "condition")
    assert refused.problem["current_state"] == "draft"
    assert refused.problem["available_actions"] == ["cancel"]


def test_denied_permission_reveals_nothing_more(order: Order) -> None:
    """
    Whoever may not run an action learns neither the state nor what else there is.
    """
    refused = answer(f"/run/{order.pk}/approve/", Asker="clerk")

    assert refused.status_code == 403
    assert refused.problem == {
        "type": f"{URN}permission",
        "title": "Not permitted",
        "status": 403,
        "detail": "You may not do this.",
        "code": "permission",
        "action": "approve",
        "reasons": [{"code": "permission", "message": "You may not do this."}],
    }


def test_unknown_action_reveals_nothing_more(order: Order) -> None:
    """
    Guessing names of actions is a 404 that lists nothing, since no permission was asked.
    """
    refused = answer(f"/run/{order.pk}/aprove/", Asker="clerk")

    assert (refused.status_code, refused.problem["code"]) == (404, "unknown_action")
    assert refused.problem["action"] == "aprove"
    assert {"current_state", "available_actions"} & set(refused.problem) == set()


def test_stale_version_is_a_failed_precondition() -> None:
    """
    A caller who saw an older version gets a 412, and learns nothing that a permission might have kept from it.
    """
    sale = Sale.objects.create()

    refused = answer(f"/move/{sale.pk}/placed/", **{"If-Match": "7"})

    assert (refused.status_code, refused.problem["code"]) == (412, "stale_version")
    assert {"current_state", "available_actions"} & set(refused.problem) == set()
    assert stored(sale, "status") == "draft"


def test_busy_object_asks_for_patience(bind: Bind, ticket: Ticket) -> None:
    """
    An object whose lock is held is a 503 that says when to ask again.
    """

    def move_again(instance: Ticket, **kwargs: Any) -> None:
        Ticket.objects.get(pk=instance.pk).flow.go()  # type: ignore[attr-defined]

    bind(declare(Transition("go", ["new"], "done", side_effects=[move_again])))

    refused = answer(f"/flow/{ticket.pk}/go/")

    assert (refused.status_code, refused.problem["code"]) == (503, "locked")
    assert refused["Retry-After"] == "1"
    assert stored(ticket) == "new"


def test_row_that_moved_away_is_a_conflict(bind: Bind, ticket: Ticket) -> None:
    """
    A row that left its state while the work ran is a 409.
    """

    def move_the_row(instance: Ticket, **kwargs: Any) -> None:
        Ticket.objects.filter(pk=instance.pk).update(state="elsewhere")

    bind(declare(Transition("go", ["new"], "done", side_effects=[move_the_row])))

    refused = answer(f"/flow/{ticket.pk}/go/")

    assert (refused.status_code, refused.problem["code"]) == (409, "moved")


def test_refused_duplicate_and_ambiguity_are_conflicts(bind: Bind, ticket: Ticket) -> None:
    """
    A process that refuses duplicates, and a name with two ways on, are a 409 each.
    """
    ways = [Transition("go", ["new"], "a"), Transition("go", ["new"], "b"), Transition("end", ["new"], "done")]
    bind(declare(*ways, duplicates="refuse"))
    done = Ticket.objects.create(state="done")

    found = [answer(f"/flow/{ticket.pk}/go/").problem, answer(f"/flow/{done.pk}/end/").problem]

    assert [(problem["status"], problem["code"]) for problem in found] == [(409, "ambiguous"), (409, "duplicate")]


def test_every_failed_condition_is_a_reason(bind: Bind, ticket: Ticket) -> None:
    """
    All reasons are listed with their words; the first one is the detail.
    """

    def paid(instance: Ticket, **kwargs: Any) -> bool:
        return False

    def packed(instance: Ticket, **kwargs: Any) -> bool:
        return False

    words = {"paid": "Not paid <yet>.", "packed": "Not packed."}
    bind(declare(Transition("go", ["new"], "done", conditions=[paid, packed]), refusal_messages=words))

    refused = answer(f"/flow/{ticket.pk}/go/")
    page = Client().post(f"/flow/{ticket.pk}/go/", headers={"Accept": BROWSER}).content.decode()

    assert refused.problem["detail"] == "Not paid <yet>."
    assert [reason["message"] for reason in refused.problem["reasons"]] == ["Not paid <yet>.", "Not packed."]
    assert "<li>Not paid &lt;yet&gt;.</li>\n<li>Not packed.</li>" in page


def test_integer_state_stays_a_number(bind: Bind) -> None:
    """
    A state is written in JSON as it is stored.
    """
    body = problem_body(InvalidTransition("no", current_state=0))

    assert json.loads(json.dumps(body))["current_state"] == 0


def test_state_that_json_does_not_know_becomes_text() -> None:
    """
    Whatever a refusal carries, its body can be written.
    """
    body = problem_body(InvalidTransition("no", current_state=Path("a")))

    assert json.loads(json.dumps(body))["current_state"] == "a"


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("InvalidTransition", 409, "source_state"),
        ("TransitionNotAllowed", 409, None),
        ("TransitionForbidden", 403, "permission"),
        ("UnknownAction", 404, "unknown_action"),
        ("TransitionTemporarilyUnavailable", 503, "locked"),
        ("AlreadyInProgress", 409, "background_in_flight"),
    ],
)
def test_refusal_raised_by_hand_has_its_status(name: str, status: int, code: str | None) -> None:
    """
    The seed's `raise InvalidTransition("…")` is a 409 too; its text is for the log and not for the client.
    """
    refused = answer(f"/raised/{name}/")

    assert (refused.status_code, refused.problem["code"]) == (status, code)
    assert refused.problem["type"] == (f"{URN}{code}" if code else "about:blank")
    assert refused.problem["title"]
    assert b"fulfilled" not in refused.content


@pytest.mark.parametrize("name", ["DoesNotExist", "ValueError"])
def test_other_exceptions_pass(name: str) -> None:
    """
    What is no refusal is none of the middleware's business.
    """
    with pytest.raises((Order.DoesNotExist, ValueError), match="Order 7"):
        Client().post(f"/raised/{name}/")


def test_denial_of_another_kind_stays_djangos() -> None:
    """
    A PermissionDenied that is no refusal gets Django's own 403 page.
    """
    refused = Client().post(f"/raised/{PermissionDenied.__name__}/", headers={"Accept": BROWSER})

    assert refused.status_code == 403
    assert b"403 Forbidden" in refused.content


def test_answers_of_views_pass(order: Order) -> None:
    """
    A move that is made is the view's answer, untouched.
    """
    made: Any = Client().post(f"/run/{order.pk}/cancel/")

    assert made.json() == {"moved": True, "state": "cancelled"}
    assert "Vary" not in made


@pytest.mark.parametrize(
    ("accept", "is_html"),
    [
        (None, False),
        ("", False),
        ("*/*", False),
        ("application/*", False),
        ("application/json", False),
        ("application/problem+json", False),
        ("application/json, text/plain, */*", False),
        ("text/html;q=0.5, application/json", False),
        ("text/html;q=0, */*", False),
        ("text/html;q=0.4, */*;q=0.5, application/json;q=0.5", False),
        ("image/png", False),
        ("garbage", False),
        (BROWSER, True),
        ("text/html", True),
        ("text/html, */*", True),
        ("text/*", True),
        ("application/xhtml+xml", True),
        ("application/json;q=0.5, text/html", True),
        ("application/json;q=0, */*", False),
        ("application/json;q=0, application/problem+json;q=0, */*", True),
        ("text/html;q=nonsense, application/json;q=0.9", True),
        ("text/html;q=7, application/json;q=0.9", True),
        ("text/html;level=1", True),
    ],
)
def test_accept_header_chooses_between_page_and_json(accept: str | None, is_html: bool) -> None:
    """
    Browsers get a page; programs, and whoever takes anything, get problem+json; q-values decide between the two.
    """
    request = RequestFactory().post("/", **({} if accept is None else {"HTTP_ACCEPT": accept}))

    response = problem_response(request, InvalidTransition("no"))

    assert response["Content-Type"] == ("text/html; charset=utf-8" if is_html else PROBLEM)
    assert prefers_html(request) is is_html


def test_page_tells_a_person_what_happened(order: Order) -> None:
    """
    A browser gets a page with the title, the detail and what is possible, escaped, and the same status.
    """
    refused = Client().post(f"/run/{order.pk}/approve/", headers={"Accept": BROWSER, "Asker": "boss"})

    page = refused.content.decode()
    assert refused.status_code == 422
    assert "<h1>A condition is not met</h1>\n<p>A condition for this is not met.</p>" in page
    assert "Possible now: cancel" in page
    assert '<html lang="en">' in page


def test_page_of_a_denial_reveals_nothing_more(order: Order) -> None:
    """
    The page keeps what the JSON keeps.
    """
    refused = Client().post(f"/run/{order.pk}/approve/", headers={"Accept": BROWSER, "Asker": "clerk"})

    page = refused.content.decode()
    assert refused.status_code == 403
    assert "draft" not in page
    assert "cancel" not in page


def test_project_may_bring_its_own_page(order: Order, settings: Any, tmp_path: Path) -> None:
    """
    A template of the project takes the place of ours, and sees the problem and the request.
    """
    (tmp_path / "django_logic").mkdir()
    (tmp_path / "django_logic" / "refusal.html").write_text("{{ problem.code }} at {{ request.path }}")
    backend = "django.template.backends.django.DjangoTemplates"
    context = {"context_processors": ["django.template.context_processors.request"]}
    settings.TEMPLATES = [{"BACKEND": backend, "DIRS": [tmp_path], "APP_DIRS": True, "OPTIONS": context}]

    refused = Client().post(f"/run/{order.pk}/approve/", headers={"Accept": BROWSER})

    assert refused.content.decode() == f"condition at /run/{order.pk}/approve/"


@pytest.mark.parametrize("templates", [[], [{"BACKEND": "django.template.backends.django.DjangoTemplates"}]])
def test_page_needs_no_template_engine(order: Order, settings: Any, templates: list[Any]) -> None:
    """
    Where no engine finds the template, the page is written without one.
    """
    settings.TEMPLATES = templates

    refused = Client().post(f"/run/{order.pk}/approve/", headers={"Accept": BROWSER})

    assert refused.status_code == 422
    assert "<h1>A condition is not met</h1><p>A condition for this is not met.</p>" in refused.content.decode()


@pytest.mark.parametrize("accept", [BROWSER, PROBLEM])
def test_answer_is_neither_cached_nor_mixed_up(order: Order, accept: str) -> None:
    """
    A refusal holds for this moment and this client: caches keep it out, and know that Accept decides its form.
    """
    refused = Client().get(f"/run/{order.pk}/approve/", headers={"Accept": accept})

    assert "no-store" in refused["Cache-Control"]
    assert refused["Vary"] == "Accept"
    assert "Retry-After" not in refused


def test_head_has_the_status_without_a_body(order: Order) -> None:
    """
    A HEAD request gets the headers of the answer alone.
    """
    refused = Client().head(f"/run/{order.pk}/approve/")

    assert (refused.status_code, refused["Content-Type"], refused.content) == (422, PROBLEM, b"")


@pytest.mark.parametrize(("action", "status"), [("approve", 422), ("aprove", 404), ("cancel", 200)])
def test_async_views_are_answered_alike(order: Order, action: str, status: int) -> None:
    """
    Under ASGI the same refusals have the same answers.
    """
    found: Any = posted_async(f"/async/{order.pk}/{action}/")

    assert found.status_code == status
    if status != 200:
        assert found["Content-Type"] == PROBLEM
        assert json.loads(found.content)["action"] == action


def test_sync_view_under_asgi_and_async_view_under_wsgi_are_answered_alike(order: Order) -> None:
    """
    Whichever way the server and the view are written, a refusal is answered.
    """
    found: list[Any] = [
        posted_async(f"/run/{order.pk}/approve/"),
        Client().post(f"/async/{order.pk}/approve/"),
    ]

    assert [json.loads(response.content)["code"] for response in found] == ["condition", "condition"]


def test_middleware_runs_in_the_mode_of_the_server() -> None:
    """
    Between async layers it is async itself, so that Django moves no request to a thread for it.
    """

    async def answer_async(request: Any) -> HttpResponse:
        return HttpResponse("async")

    def answer_sync(request: Any) -> HttpResponse:
        return HttpResponse("sync")

    request = RequestFactory().get("/")
    found = [
        async_to_sync(ConflictMiddleware(answer_async))(request),
        ConflictMiddleware(answer_sync)(request),
    ]

    assert [response.content for response in found] == [b"async", b"sync"]
    assert (ConflictMiddleware.sync_capable, ConflictMiddleware.async_capable) == (True, True)


def test_refusal_while_rendering_is_answered(order: Order) -> None:
    """
    A refusal in an answer that renders late is no server error either.
    """
    refused = answer(f"/late/{order.pk}/")

    assert refused.status_code == 422


@pytest.fixture
def atomic_requests(transactional_db: None) -> Iterator[None]:
    """
    Run each view in a transaction of its own.
    """
    facts = connections.settings["default"]
    before = facts["ATOMIC_REQUESTS"]
    facts["ATOMIC_REQUESTS"] = True
    yield
    facts["ATOMIC_REQUESTS"] = before


@pytest.mark.django_db(transaction=True)
def test_atomic_request_is_rolled_back_by_a_refusal(atomic_requests: None, order: Order) -> None:
    """
    With ATOMIC_REQUESTS a refused view leaves nothing behind, and the answer is the same.
    """
    refused = answer(f"/write/{order.pk}/approve/")
    made = Client().post(f"/write/{order.pk}/cancel/")

    assert (refused.status_code, made.status_code) == (422, 200)
    assert Order.objects.filter(note="written by the view").count() == 1
    assert moves(order, "process") == [("draft", "cancelled")]


def test_words_are_in_the_language_of_the_request(order: Order, settings: Any, tmp_path: Path) -> None:
    """
    Title and detail are translated; codes and types never are.
    """
    texts = {
        "A condition is not met": "Eine Bedingung ist nicht erfüllt",
        "A condition for this is not met.": "Eine Bedingung dafür ist nicht erfüllt.",
    }
    write_catalogue(tmp_path, "de", texts)
    settings.LOCALE_PATHS = [str(tmp_path)]
    translation.trans_real._translations.clear()
    try:
        with translation.override("de"):
            refused = answer(f"/run/{order.pk}/approve/")
    finally:
        translation.trans_real._translations.clear()

    assert refused.problem["title"] == texts["A condition is not met"]
    assert refused.problem["detail"] == texts["A condition for this is not met."]
    assert refused.problem["type"] == f"{URN}condition"


def test_listing_that_fails_leaves_the_refusal_alone() -> None:
    """
    What can't be told is null; a hint never replaces the refusal.
    """

    def broken() -> list[str]:
        raise ValueError("no listing")

    body = problem_body(TransitionNotAllowed("no", list_actions=broken))

    assert (body["status"], body["available_actions"]) == (409, None)
