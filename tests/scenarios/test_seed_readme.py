"""
Prove that the manual's example runs as it is written there: installed, bound, migrated, called, refused.

Its background transitions, workers and test kit are later chapters and not touched here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied

from django_logic import Action, Transition
from django_logic.exceptions import TransitionNotAllowed, TransitionTemporarilyUnavailable
from tests.app.models import Item, Order, Product, Ticket
from tests.app.process import SENT
from tests.flows import Bind, declare, moves, names, noting, records, stored

SHOP = Path(__file__).parent / "seed_app"

SETTINGS = """
DEBUG = False
SECRET_KEY = "for tests only"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_logic", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
"""

STORY = """
import django
django.setup()
from django.contrib.auth.models import User
from shop.models import Item, Order, Product
from shop.process import SENT
staff = User.objects.create(username="staff", is_staff=True)
product = Product.objects.create(stock=3)
pk = Order.objects.create().pk
Item.objects.create(order_id=pk, product=product, quantity=2)

order = Order.objects.get(pk=pk)
print(order.process.approve(user=staff))
product.refresh_from_db()
print(order.status, product.stock, SENT == [pk], order.process.get_available_actions(user=staff))
print([(change.from_state, change.to_state, change.actor_label) for change in order.process.history])
"""


@pytest.fixture
def staff(db: None, django_user_model: Any) -> Any:
    """
    Give a member of staff.
    """
    return django_user_model.objects.create_user("staff", is_staff=True)


@pytest.fixture
def order(db: None) -> Order:
    """
    Give an order of two from a stock of three.
    """
    SENT.clear()
    order = Order.objects.create()
    Item.objects.create(order=order, product=Product.objects.create(name="tea", stock=3), quantity=2)
    return order


def stock() -> int:
    """
    Read what is left.
    """
    return Product.objects.get().stock


def manage(folder: Path, *arguments: str) -> str:
    """
    Run Python in a project's folder with the shop and the library on its path.
    """
    path = os.pathsep.join([str(folder), str(SHOP), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "project_settings"}
    answer = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    return answer.stdout


def test_new_project_runs_the_manual_from_install_to_transition(tmp_path: Path) -> None:
    """
    The files as printed make a project: ``check`` offers the constraint, ``migrate`` and the first call work.
    """
    (tmp_path / "project_settings.py").write_text(SETTINGS)

    checked = manage(tmp_path, "-m", "django", "check")
    manage(tmp_path, "-m", "django", "migrate", "--run-syncdb", "-v", "0")
    told = manage(tmp_path, "-c", STORY).splitlines()

    assert "shop.Order.status: the database does not enforce the moves of shop.process.OrderProcess" in checked
    assert "identified 1 issue " in checked
    assert told == ["True", "approved 1 True ['cancel']", "[('draft', 'approved', 'staff')]"]


@pytest.mark.django_db(transaction=True)
def test_approval_reserves_stock_and_sends_one_mail(order: Order, staff: Any) -> None:
    """
    ``order.process.approve(user=request.user)``: conditions, permissions, side effects, state, then callbacks.
    """
    approved = Order.objects.get(pk=order.pk).process.approve(user=staff)

    assert approved is True
    assert (stored(order, "status"), stock(), SENT) == ("approved", 1, [order.pk])
    assert moves(order, "process") == [("draft", "approved")]


@pytest.mark.django_db(transaction=True)
def test_second_click_changes_nothing(order: Order, staff: Any) -> None:
    """
    The same request again reserves nothing and sends nothing.
    """
    order.process.approve(user=staff)

    again = order.process.approve(user=staff)

    assert again is False
    assert (stock(), SENT, moves(order, "process")) == (1, [order.pk], [("draft", "approved")])


@pytest.mark.django_db
def test_missing_stock_refuses_the_approval(order: Order, staff: Any) -> None:
    """
    A condition that does not answer True makes the transition unavailable.
    """
    Product.objects.update(stock=1)

    with pytest.raises(TransitionNotAllowed) as caught:
        order.process.approve(user=staff)

    assert (caught.value.reason, caught.value.reasons[0].params["hook"]) == ("condition", "has_stock")
    assert order.process.get_available_actions(user=staff) == ["cancel"]
    assert (stored(order, "status"), stock(), records()) == ("draft", 1, (0, 0))


@pytest.mark.django_db
@pytest.mark.parametrize("who", ["clerk", "visitor"])
def test_user_without_the_permission_is_refused(order: Order, clerk: Any, who: str) -> None:
    """
    Permissions receive the user; a visitor is one.
    """
    user = clerk if who == "clerk" else AnonymousUser()

    with pytest.raises(PermissionDenied) as caught:
        order.process.approve(user=user)

    assert isinstance(caught.value, TransitionNotAllowed)
    assert order.process.get_available_actions(user=user) == ["cancel"]
    assert (stored(order, "status"), stock()) == ("draft", 3)


@pytest.mark.django_db
def test_call_without_a_user_is_a_system_call(order: Order) -> None:
    """
    It skips every permission check, and no condition.
    """
    assert order.process.get_available_actions() == ["approve", "cancel"]
    assert order.process.approve() is True
    assert stock() == 1


@pytest.mark.django_db
def test_transition_starts_from_its_sources_only(order: Order, staff: Any) -> None:
    """
    ``cancel`` leaves draft and approved; nothing leaves cancelled.
    """
    assert order.process.cancel(user=staff) is True

    with pytest.raises(TransitionNotAllowed) as caught:
        order.process.approve(user=staff)

    assert (caught.value.reason, caught.value.current_state) == ("source_state", "cancelled")
    assert order.process.get_available_actions(user=staff) == []


@pytest.mark.django_db
@pytest.mark.parametrize("failed_state", [None, "broken"])
def test_failing_side_effect_stops_the_state_change(bind: Bind, ticket: Ticket, failed_state: str | None) -> None:
    """
    The failure reaches the caller, ``failed_state`` is written when declared, ``failure_callbacks`` get the exception.
    """
    log: list[Any] = []
    bind(
        declare(
            Transition(
                action_name="approve",
                sources=["new"],
                target="approved",
                side_effects=[noting([], answer=ZeroDivisionError("out of stock"))],
                failure_callbacks=[noting(log, "clean up")],
                callbacks=[noting(log, "mail")],
                failed_state=failed_state,
            )
        )
    )

    with pytest.raises(ZeroDivisionError) as caught:
        ticket.flow.approve()

    assert names(log) == ["clean up"]
    assert log[0][2]["exception"] is caught.value
    assert stored(ticket) == (failed_state or "new")


@pytest.mark.django_db(transaction=True)
def test_failing_callback_is_swallowed(bind: Bind, ticket: Ticket) -> None:
    """
    Callbacks are best effort.
    """
    bind(
        declare(
            Transition(
                action_name="approve",
                sources=["new"],
                target="approved",
                callbacks=[noting([], answer=OSError("no mail"))],
            )
        )
    )

    assert ticket.flow.approve() is True

    assert stored(ticket) == "approved"


@pytest.mark.django_db
def test_action_needs_conditions_permissions_and_side_effects_but_changes_no_state(
    bind: Bind, ticket: Ticket, clerk: Any
) -> None:
    """
    ``Action`` in place of ``Transition``.
    """
    log: list[Any] = []
    bind(
        declare(
            Action(
                action_name="remind",
                sources=["new"],
                conditions=[noting(log, "condition")],
                permissions=[noting(log, "permission")],
                side_effects=[noting(log, "work")],
            )
        )
    )

    ticket.flow.remind(user=clerk)

    assert names(log) == ["permission", "condition", "work"]
    assert stored(ticket) == "new"


@pytest.mark.django_db
def test_busy_object_is_caught_before_a_refused_one(bind: Bind, ticket: Ticket) -> None:
    """
    "Catch the subclass first": busy and refused can be told apart by class.
    """
    told: list[str] = []

    def ask(instance: Ticket, action: str) -> None:
        try:
            getattr(instance.flow, action)()
        except TransitionTemporarilyUnavailable:
            told.append("busy, retry shortly")
        except TransitionNotAllowed:
            told.append("refused")

    bind(
        declare(
            Transition("approve", ["new"], "approved", side_effects=[lambda instance, **kw: ask(instance, "cancel")]),
            Transition("cancel", ["new"], "cancelled"),
        )
    )

    ticket.flow.approve()
    ask(ticket, "cancel")

    assert told == ["busy, retry shortly", "refused"]
