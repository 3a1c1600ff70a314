"""
Declarations: what may move from where to where, and which hooks take part.

They are frozen data. Nothing here runs a hook, reads a database or imports a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, TypedDict, TypeVar, Unpack

from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import Promise

from django_logic.callables import never_runs
from django_logic.exceptions import Text
from django_logic.states import State, nearest, plain, plain_all

__all__ = ["ANY", "LONGEST_TOPIC", "Action", "Hook", "Slots", "Transition", "refusal_message"]

ANY = "*"
Hook = Callable[..., Any]
HookT = TypeVar("HookT", bound=Hook)

HOOK_SLOTS = ("conditions", "permissions", "prepare", "side_effects", "callbacks", "failure_callbacks")
LOCKS_OF_A_MOVE = ("row", "nowait", "cache")
#: What a column of topics holds.
LONGEST_TOPIC = 255


class Slots(TypedDict, total=False):
    """
    List the keywords every declaration takes.
    """

    conditions: Iterable[Hook]
    permissions: Iterable[Hook]
    prepare: Iterable[Hook]
    side_effects: Iterable[Hook]
    callbacks: Iterable[Hook]
    failure_callbacks: Iterable[Hook]
    failed_state: State
    next_transition: str | None
    lock: str | None
    event: str | bool | Callable[..., Any] | None
    label: Text | None
    refusal_messages: Mapping[str, Text] | None


def refusal_message(message: Text) -> Callable[[HookT], HookT]:
    """
    Give a condition or permission the words a refused person reads.

    Example::

        @refusal_message(_("Not enough in stock."))
        def has_stock(order, **kwargs): ...
    """

    if not isinstance(message, (str, Promise)):
        raise ImproperlyConfigured(
            f"django_logic.refusal_message takes the words a refused person reads; found {message!r}."
            ' Write @refusal_message("…") above the guard.'
        )

    def mark(hook: HookT) -> HookT:
        hook.refusal_message = message  # type: ignore[attr-defined]
        return hook

    return mark


class Transition:
    """
    Declare one named move: where it may start, where it ends, and its hooks.

    ``sources`` lists states, or is ``"*"`` for every declared state but the target. Enum members become
    their values.
    Raises: ImproperlyConfigured for a keyword, a state or a hook that can't be right.
    Source: docs/reference/declarations.md

    Example::

        Transition("approve", sources=["draft"], target="approved", conditions=[has_stock])
    """

    #: True for declarations whose work is a row that a worker claims.
    is_background: ClassVar[bool] = False
    #: True for declarations that write no state on success.
    is_action: ClassVar[bool] = False
    #: The dotted path of the `django_logic.extension.Performer` that takes the work over; None = done in the call.
    performer: ClassVar[str | None] = None
    #: The values ``lock=`` may take here.
    lock_kinds: ClassVar[tuple[str, ...]] = LOCKS_OF_A_MOVE

    action_name: str
    sources: tuple[Any, ...]
    any_source: bool
    target: Any
    conditions: tuple[Hook, ...]
    permissions: tuple[Hook, ...]
    prepare: tuple[Hook, ...]
    side_effects: tuple[Hook, ...]
    callbacks: tuple[Hook, ...]
    failure_callbacks: tuple[Hook, ...]
    failed_state: Any
    in_progress_state: Any
    next_transition: str | None
    lock: str | None
    event: str | bool | Callable[..., Any] | None
    label: Text | None
    refusal_messages: Mapping[str, Text]

    def __init__(
        self,
        action_name: str,
        sources: Iterable[Any] | Literal["*"],
        target: Any,
        **slots: Unpack[Slots],
    ) -> None:
        where = f"django_logic.{type(self).__name__}({action_name!r})"
        values: dict[str, Any] = {
            "action_name": read_action_name(where, action_name),
            "any_source": isinstance(sources, str) and sources == ANY,
            "sources": read_sources(where, sources),
            "target": read_state(f"{where}.target", target),
            **read_slots(where, slots, self.lock_kinds),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self!r} is frozen: {name} can't be set. Declare another one instead.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self!r} is frozen: {name} can't be removed.")

    def __repr__(self) -> str:
        sources = ANY if self.any_source else list(self.sources)
        return f"<{type(self).__name__} {self.action_name}: {sources} -> {self.target!r}>"

    @property
    def prepares_in_call(self) -> bool:
        """
        Tell whether ``prepare`` hooks run in the caller's process, before the lock.
        """
        return bool(self.prepare) and not self.is_background

    @property
    def runs_under_lock(self) -> bool:
        """
        Tell whether anything but the write itself has to happen while the row is held.
        """
        has_hooks = bool(self.conditions or self.permissions or self.prepare or self.side_effects)
        return has_hooks or callable(self.event)  # what an event tells is read from the row, so from a held one


class Action(Transition):
    """
    Declare work with guards and side effects that changes no state.

    Shape: as `Transition`, without a target. ``lock="none"`` takes no lock and passes no gate.
    """

    is_action = True
    lock_kinds = (*LOCKS_OF_A_MOVE, "none")

    def __init__(self, action_name: str, sources: Iterable[Any] | Literal["*"], **slots: Unpack[Slots]) -> None:
        super().__init__(action_name, sources, None, **slots)


def read_action_name(where: str, name: Any) -> str:
    """
    Return the name, or refuse one that no call could use.
    """
    if not isinstance(name, str) or not name.strip():
        raise ImproperlyConfigured(f"{where}: action_name must be a non-empty text; found {name!r}.")
    if name.startswith("_"):
        raise ImproperlyConfigured(f"{where}: action_name may not start with an underscore. Rename it.")
    return name


def read_sources(where: str, sources: Any) -> tuple[Any, ...]:
    """
    Return the source states, empty for ``"*"``; refuse text, which would be read letter by letter.
    """
    if isinstance(sources, str):
        if sources == ANY:
            return ()
        raise ImproperlyConfigured(
            f"{where}: sources must be a list of states; found the text {sources!r}. Write [{sources!r}]."
        )
    if isinstance(sources, bytes) or not isinstance(sources, Iterable):
        raise ImproperlyConfigured(f"{where}: sources must be a list of states or '*'; found {sources!r}.")
    states = plain_all(read_state(f"{where}.sources", source) for source in sources)
    if not states:
        raise ImproperlyConfigured(f"{where}: sources is empty, so it could never run. Name a state, or '*'.")
    return states


def read_state(where: str, state: Any) -> Any:
    """
    Return a state as its plain value; refuse what no state column holds.
    """
    value = plain(state)
    if value is not None and (isinstance(value, bool) or not isinstance(value, (str, int))):
        raise ImproperlyConfigured(
            f"{where}: a state must be text, a whole number or a member of an enum; found {state!r}."
        )
    return value


def read_messages(where: str, messages: Any) -> Mapping[str, Text]:
    """
    Return a map of refusal messages; refuse what is no map of texts.
    """
    if messages is None:
        return {}
    if not isinstance(messages, Mapping):
        raise ImproperlyConfigured(f"{where} must map a refusal code or a guard's name to a text; found {messages!r}.")
    for key, message in messages.items():
        if not isinstance(key, str) or not isinstance(message, (str, Promise)):
            raise ImproperlyConfigured(f"{where}: both sides must be text; found {key!r}: {message!r}.")
    return dict(messages)


def read_slots(where: str, slots: Mapping[str, Any], lock_kinds: tuple[str, ...]) -> dict[str, Any]:
    """
    Return every slot with its value or default; refuse keywords nobody reads.
    """
    values: dict[str, Any] = dict(slots)
    for key in values:
        if key == "in_progress_state":
            raise ImproperlyConfigured(
                f"{where}: in_progress_state belongs to BackgroundTransition, which writes it together with the row"
                " that will finish the work. Remove it, or declare a BackgroundTransition."
            )
        if key not in Slots.__annotations__:
            raise ImproperlyConfigured(f"{where}: unknown keyword {key!r}.{nearest(key, Slots.__annotations__)}")
    for slot in HOOK_SLOTS:
        values[slot] = read_hooks(f"{where}.{slot}", values.get(slot, ()))
    values["failed_state"] = read_state(f"{where}.failed_state", values.get("failed_state"))
    values["in_progress_state"] = None
    values["next_transition"] = read_optional_text(f"{where}.next_transition", values.get("next_transition"))
    values["lock"] = values.get("lock")
    if values["lock"] is not None and values["lock"] not in lock_kinds:
        raise ImproperlyConfigured(f"{where}: lock must be one of {', '.join(lock_kinds)}; found {values['lock']!r}.")
    values["event"] = read_event(f"{where}.event", values.get("event"))
    values["label"] = values.get("label")
    values["refusal_messages"] = read_messages(f"{where}.refusal_messages", values.get("refusal_messages", {}))
    return values


def read_hooks(where: str, hooks: Any) -> tuple[Hook, ...]:
    """
    Return a slot's callables in order; refuse a lone callable and anything that can't be called.
    """
    if callable(hooks) or isinstance(hooks, (str, bytes)) or not isinstance(hooks, Iterable):
        raise ImproperlyConfigured(f"{where} must be a list of callables; found {hooks!r}. Put it in brackets.")
    listed = tuple(hooks)
    for hook in listed:
        if not callable(hook):
            raise ImproperlyConfigured(f"{where} must hold callables; found {hook!r}.")
        if never_runs(hook):
            raise ImproperlyConfigured(
                f"{where}: calling {hook!r} only makes a coroutine or a generator, its body would never run."
                " Make it a plain function, for async code one that uses async_to_sync."
            )
    return listed


def read_event(where: str, event: Any) -> str | bool | Callable[..., Any] | None:
    """
    Return what a declaration says of its event: another topic, True or False, or a function that builds the payload.
    """
    if event is None or isinstance(event, bool):
        return event
    if callable(event) and not never_runs(event):
        return event  # type: ignore[no-any-return]
    if isinstance(event, str) and event.strip() == event and event.isprintable() and 0 < len(event) <= LONGEST_TOPIC:
        return event
    raise ImproperlyConfigured(
        f"{where} must be a topic of at most {LONGEST_TOPIC} characters without blanks around it, True or False, or a"
        f" plain function that returns the payload; found {event!r}."
    )


def read_optional_text(where: str, value: Any) -> str | None:
    """
    Return a name or None.
    """
    if value is not None and (not isinstance(value, str) or not value):
        raise ImproperlyConfigured(f"{where} must be the name of an action; found {value!r}.")
    return value
