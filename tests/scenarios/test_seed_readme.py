"""
Prove that the manual's example runs as it is written there: installed, bound, migrated, called, refused.

Its background transitions and workers are later chapters and not touched here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied

from django_logic import Action, Transition
from django_logic.exceptions import TransitionNotAllowed, TransitionTemporarilyUnavailable
from django_logic.testing import Scenario, assert_matrix
from tests.app.models import Item, Order, Product, Ticket
from tests.app.process import SENT, OrderProcess
from tests.flows import names, noting, records

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
def orders(process_scenario: Callable[..., Scenario]) -> Scenario:
    """
    Give a scenario of the manual's orders.
    """
    return process_scenario(OrderProcess, Order)


@pytest.fixture
def order(orders: Scenario) -> Order:
    """
    Give an order of two from a stock of three.
    """
    SENT.clear()
    order = orders.create_instance()
    Item.objects.create(order=order, product=Product.objects.create(name="tea", stock=3), quantity=2)
    return order


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
def test_approval_reserves_stock_and_sends_one_mail(orders: Scenario, order: Order, staff: Any) -> None:
    """
    ``order.process.approve(user=request.user)``: conditions, permissions, side effects, state, then callbacks.
    """
    approved = orders.transition(Order.objects.get(pk=order.pk), "approve", user=staff)

    assert approved is True
    orders.assert_journey(
        [{"action": "approve", "side_effects": ["reserve_stock"], "callbacks": ["send_approval_email"]}]
    )
    orders.assert_state(order, "approved")
    orders.assert_history(order, [("draft", "approved", staff)])
    assert (Product.objects.get().stock, SENT) == (1, [order.pk])


@pytest.mark.django_db(transaction=True)
def test_second_click_changes_nothing(orders: Scenario, order: Order, staff: Any) -> None:
    """
    The same request again reserves nothing and sends nothing.
    """
    orders.transition(order, "approve", user=staff)

    again = orders.transition(order, "approve", user=staff)

    assert again is False
    orders.assert_journey([{"action": "approve"}, {"action": "approve", "side_effects": [], "callbacks": []}])
    orders.assert_history(order, [("draft", "approved", staff)])
    assert (Product.objects.get().stock, SENT) == (1, [order.pk])


def test_missing_stock_refuses_the_approval(orders: Scenario, order: Order, staff: Any) -> None:
    """
    A condition that does not answer True makes the transition unavailable.
    """
    Product.objects.update(stock=1)

    orders.transition(order, "approve", user=staff, expect_raises=TransitionNotAllowed)

    refusal = orders.assert_raised()
    assert (refusal.reason, refusal.reasons[0].params["hook"]) == ("condition", "has_stock")
    assert order.process.get_available_actions(user=staff) == ["cancel"]
    orders.assert_state(order, "draft")
    assert (Product.objects.get().stock, records()) == (1, (0, 0))


@pytest.mark.parametrize("who", ["clerk", "visitor"])
def test_user_without_the_permission_is_refused(orders: Scenario, order: Order, clerk: Any, who: str) -> None:
    """
    Permissions receive the user; a visitor is one.
    """
    user = clerk if who == "clerk" else AnonymousUser()

    orders.transition(order, "approve", user=user, expect_raises=PermissionDenied)

    orders.assert_raised(TransitionNotAllowed)
    assert order.process.get_available_actions(user=user) == ["cancel"]
    orders.assert_state(order, "draft")
    assert Product.objects.get().stock == 3


def test_call_without_a_user_is_a_system_call(orders: Scenario, order: Order) -> None:
    """
    It skips every permission check, and no condition.
    """
    assert order.process.get_available_actions() == ["approve", "cancel"]
    assert orders.transition(order, "approve") is True
    orders.assert_history(order, [("draft", "approved", None)])
    assert Product.objects.get().stock == 1


def test_transition_starts_from_its_sources_only(orders: Scenario, order: Order, staff: Any) -> None:
    """
    ``cancel`` leaves draft and approved; nothing leaves cancelled.
    """
    assert orders.transition(order, "cancel", user=staff) is True

    orders.transition(order, "approve", user=staff, expect_raises=TransitionNotAllowed)

    refusal = orders.assert_raised()
    assert (refusal.reason, refusal.current_state) == ("source_state", "cancelled")
    assert order.process.get_available_actions(user=staff) == []


def test_every_pair_of_states_is_as_declared(db: None) -> None:
    """
    What ``sources`` and ``target`` do not say is refused from every state.
    """
    assert_matrix(OrderProcess, Order, database=False)


@pytest.mark.parametrize("failed_state", [None, "broken"])
def test_failing_side_effect_stops_the_state_change(tickets_with: Any, failed_state: str | None) -> None:
    """
    The failure reaches the caller, ``failed_state`` is written when declared, ``failure_callbacks`` get the exception.
    """
    log: list[Any] = []
    failure = ZeroDivisionError("out of stock")
    tickets = tickets_with(
        Transition(
            action_name="approve",
            sources=["new"],
            target="approved",
            side_effects=[noting([], "reserve")],
            failure_callbacks=[noting(log, "clean up")],
            callbacks=[noting(log, "mail")],
            failed_state=failed_state,
        )
    )
    ticket = tickets.create_instance()

    tickets.transition(ticket, "approve", fail_side_effect="reserve", fail_with=failure)

    assert tickets.assert_raised() is failure
    assert [(name, keywords["exception"]) for name, _user, keywords in log] == [("clean up", failure)]
    tickets.assert_state(ticket, failed_state or "new")


@pytest.mark.django_db(transaction=True)
def test_failing_callback_is_swallowed(tickets_with: Any) -> None:
    """
    Callbacks are best effort.
    """
    log: list[Any] = []
    mail = noting(log, "mail", answer=OSError("no mail"))
    tickets = tickets_with(Transition(action_name="approve", sources=["new"], target="approved", callbacks=[mail]))
    ticket = tickets.create_instance()

    assert tickets.transition(ticket, "approve", expect_raises=False) is True

    assert names(log) == ["mail"]
    tickets.assert_state(ticket, "approved")


def test_action_needs_conditions_permissions_and_side_effects_but_changes_no_state(
    tickets_with: Any, clerk: Any
) -> None:
    """
    ``Action`` in place of ``Transition``.
    """
    log: list[Any] = []
    tickets = tickets_with(
        Action(
            action_name="remind",
            sources=["new"],
            conditions=[noting(log, "condition")],
            permissions=[noting(log, "permission")],
            side_effects=[noting(log, "work")],
        )
    )
    ticket = tickets.create_instance()

    tickets.transition(ticket, "remind", user=clerk)

    assert names(log) == ["permission", "condition", "work"]
    tickets.assert_state(ticket, "new")
    tickets.assert_history(ticket, [])


def test_busy_object_is_caught_before_a_refused_one(tickets_with: Any) -> None:
    """
    "Catch the subclass first": busy and refused can be told apart by class.
    """
    told: list[str] = []

    def ask(instance: Ticket, **keywords: Any) -> None:
        try:
            instance.flow.cancel()
        except TransitionTemporarilyUnavailable:
            told.append("busy, retry shortly")
        except TransitionNotAllowed:
            told.append("refused")

    tickets = tickets_with(
        Transition("approve", ["new"], "approved", side_effects=[ask]), Transition("cancel", ["new"], "cancelled")
    )
    ticket = tickets.create_instance()

    tickets.transition(ticket, "approve")
    ask(ticket)

    assert told == ["busy, retry shortly", "refused"]
