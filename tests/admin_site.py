"""
Install Django's admin for the length of one test, and look at it as somebody with few rights or all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.apps import apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.test import Client
from django.test.utils import override_settings
from django.urls import clear_url_caches

from django_logic import extension
from django_logic.outbox.events import rows_of
from tests.settings import INSTALLED_APPS

#: The apps whose pages are tested.
APPS = ("django_logic_background", "django_logic_outbox")
WITH_ADMIN = {
    "INSTALLED_APPS": [*INSTALLED_APPS, "django.contrib.admin", "django.contrib.messages", "django.contrib.sessions"],
    "MIDDLEWARE": [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    # Kept in cookies, so that neither needs a table.
    "SESSION_ENGINE": "django.contrib.sessions.backends.signed_cookies",
    "MESSAGE_STORAGE": "django.contrib.messages.storage.cookie.CookieStorage",
    "STATIC_URL": "/static/",
    "ROOT_URLCONF": "tests.background.admin_urls",
    "TEMPLATES": [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
}


@contextmanager
def admin_installed() -> Iterator[None]:
    """
    Install the admin. Installing makes every app ready once more, so who wrote no events before writes none after.
    """
    wrote_events = extension.contributors_are_active()
    with override_settings(**WITH_ADMIN):
        if not wrote_events:
            extension.unregister(rows_of)
        clear_url_caches()
        yield
    clear_url_caches()


def client_of(**rights: Any) -> Client:
    """
    Give the browser of somebody with these rights: `is_superuser`, or names of permissions.
    """
    names = rights.pop("permissions", ())
    for label in APPS if names else ():
        create_permissions(apps.get_app_config(label), verbosity=0)  # an earlier flush may have taken them
    user = User.objects.create_user("boss", is_staff=True, **rights)
    for name in names:
        user.user_permissions.add(Permission.objects.get(codename=name, content_type__app_label__in=APPS))
    client = Client()
    client.force_login(user)
    return client


def page(client: Client, address: str, **parameters: Any) -> str:
    """
    Fetch a page.
    """
    answer = client.get(address, parameters)
    assert answer.status_code == 200, answer.status_code
    return answer.content.decode()


def listed(client: Client, address: str, **parameters: Any) -> list[Any]:
    """
    Return the keys of the rows of a list, in its order.
    """
    answer = client.get(address, parameters)
    assert answer.status_code == 200, answer.headers
    return [row.pk for row in answer.context["cl"].result_list]


def act(client: Client, address: str, action: str, *pks: Any, **more: str) -> list[str]:
    """
    Choose an action for rows, and return what was said.
    """
    answer = client.post(address, {"action": action, "_selected_action": [str(pk) for pk in pks], **more})
    return [str(told) for told in get_messages(answer.wsgi_request)] if answer.status_code == 302 else []
