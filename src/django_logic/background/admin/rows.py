"""
Rows in the admin: why each is where it is, how it ended, and two things to do to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_logic.background.admin.filters import QueueFilter, ReasonFilter
from django_logic.background.admin.masking import masked
from django_logic.background.cancel import cancel_message
from django_logic.background.explain import Explanation, explain
from django_logic.background.mending import CannotMend, send
from django_logic.background.models import TransitionMessage
from django_logic.exceptions import TransitionNotAllowed

if TYPE_CHECKING:
    MessageBase = admin.ModelAdmin[TransitionMessage]
else:
    MessageBase = admin.ModelAdmin

__all__ = ["MessageAdmin"]

#: So many refusals of one action are told one by one.
MOST_TOLD = 5


class ReasonForm(ActionForm):
    """
    Ask for a reason beside the action.
    """

    reason = forms.CharField(label=_("Reason:"), required=False)


class ExplainedList(ChangeList):
    """
    Explain the rows of a page, all at once.
    """

    def get_results(self, request: HttpRequest) -> None:
        """
        Fetch the page and why each of its rows is where it is.
        """
        super().get_results(request)
        page: list[Any] = list(self.result_list)
        waiting = [message.pk for message in page if not message.is_completed]
        found = {entry.id: entry for entry in explain(pks=waiting, using=self.queryset.db)} if waiting else {}
        for message in page:
            message.explanation = found.get(message.pk)
        self.result_list = page


@admin.register(TransitionMessage)
class MessageAdmin(MessageBase):
    """
    Show the rows of background work, why each is where it is, and how it ended.
    """

    list_display = ("id", "label", "subject", "queue_name", "code", "outcome", "errors_count", "created", "run_at")
    list_filter = (ReasonFilter, QueueFilter, "outcome", "kind")
    search_fields = ("instance_id__exact",)
    ordering = ("-id",)
    show_full_result_count = False
    actions = ("send_now", "cancel")
    action_form = ReasonForm
    readonly_fields = ("label", "subject", "why", "next_command", "keywords")
    fieldsets = (
        (None, {"fields": ("label", "subject", "why", "next_command", "queue_name", "priority", "run_at", "outcome")}),
        (
            _("Call"),
            {
                "fields": (
                    *("keywords", "user_id", "actor_id", "actor_label", "reason", "created"),
                    *("transition_id", "root_id", "parent_id", "traceparent"),
                )
            },
        ),
        (
            _("Attempts"),
            {
                "fields": (
                    *("attempts_started", "errors_count", "max_errors", "timeout_seconds", "last_error_message"),
                    *("last_error_dt", "started_at", "worker", "backend_pid", "code_version"),
                )
            },
        ),
        (_("End"), {"fields": ("completed_at", "duration_ms", "ended_in_failure", "failure_side_effect_error")}),
        (
            _("Declaration"),
            {"fields": ("kind", "hook_name", "model_class", "process_class", "owning_process_class", "field_name")},
        ),
    )

    def get_changelist(self, request: HttpRequest, **keywords: Any) -> type[ChangeList]:
        """
        Return the list that explains its rows.
        """
        return ExplainedList

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """
        Deny: a row is made by a call.
        """
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """
        Deny: a row that vanished would leave its object busy for ever.
        """
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """
        Let those who may change rows act on the list; a single row is only looked at.
        """
        return obj is None and super().has_change_permission(request)

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """
        Deny to narrow the list by what keywords hold, which would tell secrets bit by bit.
        """
        known = () if request is None else (request,)
        return lookup.partition("__")[0] != "kwargs" and super().lookup_allowed(lookup, value, *known)

    @admin.display(description=_("reason"))
    def code(self, message: Any) -> str:
        """
        Return why a row of the list is where it is.
        """
        entry: Explanation | None = message.explanation
        return "" if entry is None else str(entry.code)

    @admin.display(description=_("why it is where it is"))
    def why(self, message: TransitionMessage) -> str:
        """
        Return the reason of one row in full.
        """
        entry = explained(message)
        if entry is None:
            return str(_("It has ended: %(outcome)s") % {"outcome": message.get_outcome_display()})
        return f"{entry.code}: {entry.detail}" + (f"; {entry.note}" if entry.note else "")

    @admin.display(description=_("next command"))
    def next_command(self, message: TransitionMessage) -> SafeString | str:
        """
        Return what to type next.
        """
        entry = explained(message)
        return "" if entry is None else format_html("<code>{}</code>", entry.next_command)

    @admin.display(description=_("keywords"))
    def keywords(self, message: TransitionMessage) -> SafeString:
        """
        Return the keywords as they are stored, without secrets.
        """
        text = json.dumps(masked(message.kwargs), indent=2, ensure_ascii=False)
        return format_html("<pre>{}</pre>", text)

    @admin.action(permissions=["change"], description=_("Send now: end the pause of the selected rows"))
    def send_now(self, request: HttpRequest, queryset: QuerySet[TransitionMessage]) -> None:
        """
        Make the rows due now and wake the workers.
        """
        sent = self.each(request, queryset, lambda pk: send(pk, using=queryset.db))
        if sent:
            self.message_user(
                request,
                ngettext("%(count)d row is due now.", "%(count)d rows are due now.", len(sent)) % {"count": len(sent)},
                messages.SUCCESS,
            )

    @admin.action(permissions=["change"], description=_("Cancel the selected rows"))
    def cancel(self, request: HttpRequest, queryset: QuerySet[TransitionMessage]) -> None:
        """
        End the rows through their failure path; attempts that run are asked to stop.
        """
        reason = request.POST.get("reason", "")
        asked = self.each(
            request,
            queryset,
            lambda pk: cancel_message(pk, using=queryset.db, user=request.user, reason=reason),
        )
        ended = sum(asked)
        for count, one, many in (
            (ended, "%(count)d row was cancelled.", "%(count)d rows were cancelled."),
            (
                len(asked) - ended,
                "%(count)d attempt runs and was asked to stop.",
                "%(count)d attempts run and were asked to stop.",
            ),
        ):
            if count:
                self.message_user(request, ngettext(one, many, count) % {"count": count}, messages.SUCCESS)

    def each(self, request: HttpRequest, queryset: QuerySet[TransitionMessage], act: Callable[[int], Any]) -> list[Any]:
        """
        Act on each row and return the answers; refusals are told to the user.
        """
        answers, refusals = [], []
        for pk in queryset.order_by("pk").values_list("pk", flat=True):
            try:
                answers.append(act(pk))
            except (CannotMend, TransitionNotAllowed) as refusal:
                refusals.append(str(refusal))
        for text in refusals[:MOST_TOLD]:
            self.message_user(request, text, messages.WARNING)
        if len(refusals) > MOST_TOLD:
            self.message_user(request, _("And %d more.") % (len(refusals) - MOST_TOLD), messages.WARNING)
        return answers


def explained(message: TransitionMessage) -> Explanation | None:
    """
    Explain one row, once for all that is shown of it; None when it has ended.
    """
    known: Any = message
    if not hasattr(known, "explanation"):
        found = explain(pks=[message.pk], using=message._state.db or "default")
        known.explanation = found[0] if found else None
    entry: Explanation | None = known.explanation
    return entry
