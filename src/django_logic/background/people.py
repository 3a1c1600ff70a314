"""
Users on their way to a worker and back: one that was given never turns into "no user", which would skip permissions.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.utils.functional import Promise
from django.utils.module_loading import import_string

from django_logic.background.exceptions import KwargsSerializationError
from django_logic.background.models import TransitionMessage
from django_logic.call import Call

__all__ = ["DepartedUser", "actor_of", "stored_user", "user_of"]


class DepartedUser:
    """
    Stand for a user who is anonymous, or whose row is gone: somebody asked, and has no rights.
    """

    is_authenticated = False
    is_anonymous = True
    is_active = is_staff = is_superuser = False

    def __init__(self, pk: str | None, label: str) -> None:
        self.pk = self.id = pk
        self.username = label

    def __str__(self) -> str:
        return self.username or f"user {self.pk}"

    def get_username(self) -> str:
        """
        Return the name history recorded.
        """
        return self.username

    def has_perm(self, perm: str, obj: Any = None) -> bool:
        """
        Deny.
        """
        return False

    def has_perms(self, perm_list: Any, obj: Any = None) -> bool:
        """
        Deny.
        """
        return False

    def has_module_perms(self, module: str) -> bool:
        """
        Deny.
        """
        return False


def stored_user(call: Call) -> str | None:
    """
    Return what a row keeps of the user: None for none, empty for an anonymous one, else the key.
    """
    for name, person in (("user", call.user), ("actor", call.actor)):
        refuse_stranger(call, name, person)
    if call.user is None:
        return None
    key = getattr(call.user, "pk", None)
    return "" if key is None else str(key)


def refuse_stranger(call: Call, name: str, person: Any) -> None:
    """
    Refuse a person of another class than the project's users: the key alone would come back as somebody else.

    Raises: KwargsSerializationError.
    """
    if person is None or isinstance(person, (str, Promise, DepartedUser)) or getattr(person, "pk", None) is None:
        return
    try:
        known: Any = apps.get_model(settings.AUTH_USER_MODEL)
    except (LookupError, ValueError):
        known = ()
    if not isinstance(person, known):
        wanted = f"must be a {settings.AUTH_USER_MODEL}" if known else "can't be loaded again without a user model"
        raise KwargsSerializationError(
            f"{call.label}: {name}= of background work {wanted}; found a {type(person).__name__}, whose key could come"
            " back as another person's. Pass its name as actor=, or the object under a keyword of its own.",
            name,
        )


def user_of(message: TransitionMessage) -> Any:
    """
    Load the user a call was made with.
    """
    if message.user_id is None:
        return None
    if message.user_id == "":
        return anonymous()
    found = load(message.user_id)
    return found if found is not None else DepartedUser(message.user_id, message.actor_label)


def actor_of(message: TransitionMessage, user: Any) -> Any:
    """
    Load who is recorded as having asked: a user, a name, or None.
    """
    if not message.actor_id:
        # Django's anonymous user has no key; a label alone is a name, unless it is that user's own.
        return user if message.user_id == "" and message.actor_label == str(user) else message.actor_label or None
    if message.actor_id == message.user_id:
        return user
    found = load(message.actor_id)
    return found if found is not None else DepartedUser(message.actor_id, message.actor_label)


def anonymous() -> Any:
    """
    Return Django's anonymous user, or a stand-in where its app is not installed.
    """
    if apps.is_installed("django.contrib.auth"):
        return import_string("django.contrib.auth.models.AnonymousUser")()
    return DepartedUser(None, "AnonymousUser")


def load(key: str) -> Any:
    """
    Load a user by its stored key; None when it is gone, or the project has no such table any more.
    """
    try:
        model: Any = apps.get_model(settings.AUTH_USER_MODEL)
        return model._base_manager.get(pk=model._meta.pk.to_python(key))
    except (LookupError, ValueError, ObjectDoesNotExist, ValidationError):
        return None
