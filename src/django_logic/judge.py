"""
The one judge: may this call run, is it a duplicate, or why not.

Calling, listing and explaining ask the same function. Guards are the only user code it runs,
and only those of the action that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django_logic.call import Call, hook_keywords, running_within
from django_logic.exceptions import BUILT_IN_MESSAGES, Refusal, Text, TransitionNotAllowed, refusal_error
from django_logic.hooks import ask, name_of
from django_logic.states import nearest
from django_logic.subject import state_of
from django_logic.transitions import Hook
from django_logic.tree import Candidate

__all__ = [
    "Verdict",
    "available",
    "busy_error",
    "candidates_of",
    "duplicate_error",
    "examine",
    "lost_error",
    "refuse",
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    Say how a call stands: one candidate may run, or it is a duplicate, or reasons speak against it.
    """

    candidate: Candidate | None = None
    is_duplicate: bool = False
    reasons: tuple[Refusal, ...] = ()


def candidates_of(call: Call) -> tuple[Candidate, ...]:
    """
    Return the declarations a call may mean.
    """
    if call.by_target:
        return call.tree.by_target.get(call.target, ())
    return call.tree.by_action.get(call.action or "", ())


def examine(call: Call, state: Any, version: Callable[[], int] | None = None) -> Verdict:
    """
    Judge a call against a state, in the order of the contract: version, permissions, duplicate, source, conditions.

    ``version`` reads the newest sequence; it is asked only when the caller expects one.
    Transaction: the caller's; holds nothing. Raises: whatever a guard raises.
    """
    if call.expected_version is not None and version is not None:
        found = version()
        if found != call.expected_version:
            params = {"expected": call.expected_version, "found": found}
            return Verdict(reasons=(refusal(call, "stale_version", (), params),))
    named = candidates_of(call)
    if not named:
        return judge_unknown(call, state)
    speaking = tuple(candidate for candidate in named if state in candidate.sources)
    permitted, denials = sift(call, speaking or named, "permission")
    if not permitted:
        return Verdict(reasons=denials)
    if not speaking:
        return judge_elsewhere(call, state, permitted)
    fitting, failures = sift(call, permitted, "condition")
    if len(fitting) > 1:
        several: dict[str, Any] = {"candidates": [candidate.name for candidate in fitting]}
        return Verdict(reasons=(refusal(call, "ambiguous", fitting, several),))
    return Verdict(candidate=fitting[0]) if fitting else Verdict(reasons=failures)


def judge_unknown(call: Call, state: Any) -> Verdict:
    """
    Judge a call nothing is declared for.
    """
    if not call.by_target:
        return Verdict(reasons=(refusal(call, "unknown_action", (), {"action": call.action}),))
    denials = tuple(
        refusal(call, "permission", (), {"hook": name_of(hook)}, hook)
        for hook in call.tree.root.permissions
        if call.user is not None and not answer(call, hook, "permission", {})
    )
    if denials:
        return Verdict(reasons=denials)
    if call.target == state and call.target in call.tree.states:
        return judge_arrived(call, (), state)
    return Verdict(reasons=(refusal(call, "source_state", (), {"state": state, "target": call.target}),))


def judge_arrived(call: Call, candidates: tuple[Candidate, ...], state: Any) -> Verdict:
    """
    Judge a call for the state the object is in: a duplicate, or refused where the process wants that.
    """
    if call.tree.root.duplicates == "refuse":
        return Verdict(reasons=(refusal(call, "duplicate", candidates, {"state": state}),))
    return Verdict(is_duplicate=True)


def judge_elsewhere(call: Call, state: Any, permitted: tuple[Candidate, ...]) -> Verdict:
    """
    Judge a call none of whose declarations starts from the present state.
    """
    if any(not candidate.transition.is_action and candidate.transition.target == state for candidate in permitted):
        return judge_arrived(call, permitted, state)
    params = {"state": state, "target": target_of(call), "sources": sorted_states(permitted)}
    return Verdict(reasons=(refusal(call, "source_state", permitted, params),))


def sorted_states(candidates: Iterable[Candidate]) -> list[Any]:
    """
    Return the states from which any of these may start, in a stable order.
    """
    return sorted({state for candidate in candidates for state in candidate.sources}, key=str)


def sift(call: Call, candidates: tuple[Candidate, ...], kind: str) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
    """
    Part candidates by their permissions or conditions: those that pass, and why the others don't.

    Each hook is asked once, however many candidates share it. Without a user no permission is asked.
    """
    if kind == "permission" and call.user is None:
        return candidates, ()
    passed: list[Candidate] = []
    reasons: dict[tuple[int, str], Refusal] = {}
    answers: dict[int, bool] = {}
    for candidate in candidates:
        hooks = candidate.permissions if kind == "permission" else candidate.conditions
        failed = [hook for hook in hooks if not answer(call, hook, kind, answers)]
        if not failed:
            passed.append(candidate)
        for hook in failed:
            params = {"hook": name_of(hook), "action": candidate.transition.action_name}
            reasons.setdefault((id(hook), kind), refusal(call, kind, (candidate,), params, hook))
    return tuple(passed), tuple(reasons.values())


def answer(call: Call, hook: Hook, kind: str, answers: dict[int, bool]) -> bool:
    """
    Ask a guard, once per examination.
    """
    if id(hook) not in answers:
        keywords = hook_keywords(call)
        with running_within(call):
            if kind == "permission":
                user = keywords.pop("user")
                answers[id(hook)] = bool(ask(hook, call.instance, user, keywords=keywords))
            else:
                answers[id(hook)] = bool(ask(hook, call.instance, keywords=keywords))
    return answers[id(hook)]


def refusal(
    call: Call, code: str, candidates: tuple[Candidate, ...], params: Mapping[str, Any], hook: Hook | None = None
) -> Refusal:
    """
    Build a refusal with the words of the nearest declaration that has some.
    """
    declared = getattr(hook, "refusal_message", None) if hook is not None else None
    if declared is None:
        keys = (name_of(hook), code) if hook is not None else (code,)
        maps = [candidate.transition.refusal_messages for candidate in candidates[:1]]
        path = candidates[0].path if candidates else (call.tree.root,)
        maps += [process.refusal_messages for process in reversed(path)]
        declared = first_words(maps, keys) or BUILT_IN_MESSAGES[code]
    return Refusal(code, str(declared), {"action": call.action, **params})


def first_words(maps: Iterable[Mapping[str, Text]], keys: tuple[str, ...]) -> Text | None:
    """
    Return the first message under any of these keys, nearest map first.
    """
    return next((words[key] for words in maps for key in keys if key in words), None)


def available(call: Call, state: Any) -> list[Candidate]:
    """
    List what could run now, one candidate per action name, sorted by name. ``call`` serves as a template.
    """
    found = []
    for name in sorted(call.tree.by_action):
        verdict = examine(replace(call, action=name, target=None, by_target=False, expected_version=None), state)
        if verdict.candidate is not None:
            found.append(verdict.candidate)
    return found


def refuse(
    call: Call, state: Any, reasons: tuple[Refusal, ...], explanation: str | None = None
) -> TransitionNotAllowed:
    """
    Build the exception for a refused call.
    """
    return refusal_error(
        f"{call.label} refused for {call.subject} in state {state!r}: {explanation or explain(call, reasons[0])}",
        reasons,
        action=call.action,
        target=target_of(call),
        current_state=state,
        list_actions=lambda: [candidate.transition.action_name for candidate in available(call, state)],
    )


def target_of(call: Call) -> Any:
    """
    Return where the call would take the object, None where its declarations differ.
    """
    targets = {call.target} if call.by_target else {candidate.transition.target for candidate in candidates_of(call)}
    return targets.pop() if len(targets) == 1 else None


def explain(call: Call, reason: Refusal) -> str:
    """
    Say for a developer what was found and what to do.
    """
    params = reason.params
    match reason.code:
        case "permission" | "condition":
            return f"{reason.code} {params.get('hook')} says no ({reason.message})"
        case "source_state":
            return explain_source(call, params)
        case "unknown_action":
            return f"no action has that name.{nearest(call.action, call.tree.by_action)}"
        case "ambiguous":
            fitting = ", ".join(params["candidates"])
            return f"several declarations fit: {fitting}. Make their conditions exclude each other."
        case "stale_version":
            return f"expected version {params['expected']}, found {params['found']}. Reload and decide again."
        case "moved":
            return "the row left that state while the work ran, nothing was written. Reload and decide again."
        case "background_in_flight" | "background_stranded":
            return explain_background(reason)
        case _:
            return reason.message


def explain_background(reason: Refusal) -> str:
    """
    Say which work stands in the way, and what to do about it.
    """
    work, row = reason.params.get("transition"), reason.params.get("message_id")
    found = f"its background work {work} (row {row}) is open" if row is not None else "background work is open"
    if reason.code == "background_stranded":
        return f"{found} and nobody runs it. See: manage.py dl_transitions."
    return f"{found}. Try again when it has ended, or start follow-up work from a callback."


def explain_source(call: Call, params: Mapping[str, Any]) -> str:
    """
    Say that an edge is missing, and between which states.
    """
    target = params.get("target")
    if call.by_target and target not in call.tree.states:
        return f"no state is called {target!r}.{nearest(target, (s for s in call.tree.states if s is not None))}"
    sources = params.get("sources") or []
    move = f"cannot move {params.get('state')} → {target}" if target is not None else "cannot run here"
    starts = f"it may start from {', '.join(map(repr, sources))}" if sources else "nothing leads there"
    return f"{move}; {starts}. Reload the object and choose an available action."


def duplicate_error(call: Call, state: Any) -> TransitionNotAllowed:
    """
    Build what compensation is told when a prepared call turns out to be a duplicate.
    """
    return refuse(call, state, (refusal(call, "duplicate", candidates_of(call), {"state": state}),))


def busy_error(call: Call, found: str) -> TransitionNotAllowed:
    """
    Build the refusal of a call whose object is held elsewhere.
    """
    reason = refusal(call, "locked", candidates_of(call), {})
    return refuse(call, state_of(call.column, call.instance), (reason,), f"{found}.")


def lost_error(call: Call, state: Any) -> TransitionNotAllowed:
    """
    Build the refusal of a call whose row moved while its work ran.
    """
    return refuse(call, state, (refusal(call, "moved", candidates_of(call), {"state": state}),))
