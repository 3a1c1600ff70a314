"""
Prove that one module writes states, and that raw SQL lives in few places.
"""

from __future__ import annotations

import ast

from tests.architecture.source import Module, called_name, modules

# Who may call what, outside the writer. An entry needs a reason that a reviewer accepts.
ALLOWED_WRITES: dict[str, set[str]] = {
    "audit": {"bulk_create"},  # inserts an entry about a call that wrote nothing
    "background.claim_elsewhere": {"setattr", "update"},  # counts an attempt on a row of its own table
    "background.worker.clerk": {"bulk_create", "update"},  # says that its worker lives
    "background.settle": {"update"},  # lets rows behind a failed one wait with it
    "binding": {"setattr"},  # puts the accessor on the model class
    "locks": {"vars"},  # refreshes the instance in memory from the row it has locked
    "testing.clock": {"update"},  # lets time pass in a test
    "outbox.inbox": {"save"},  # notes that a message was taken
    "outbox.models": {"save", "bulk_create"},  # adds a message that is no move's, with its deliveries
    "outbox.relay.claim": {"update"},  # who has a delivery, and
    "outbox.relay.mark": {"update", "bulk_create"},  # what became of it
    "outbox.relay.replaying": {"update"},  # puts dead deliveries back
    "testing.placing": {"update"},  # puts an object of a test into a state
    "testing.rows": {"save"},  # makes a row for a test
    "testing.snapshots": {"save", "save_base"},  # puts an object of production into a test
    "subject": {"vars"},  # repairs the state in memory, so that it equals the row
}
ROW_WRITES = {"save", "save_base", "asave", "bulk_update", "abulk_update", "bulk_create", "abulk_create", "aupdate"}
# A name stands for a module or for a package with all it holds.
ALLOWED_SQL = {
    "writer",
    "locks",
    "reads",
    "constraints",
    "operations",
    "reports",
    "background.claim",
    "background.explain.reading",
    "background.explain.sessions",
    "background.worker.clerk",
    "background.lanes",
    "listener",
    "outbox.publishers.redis_streams",  # executes a pipeline of Redis
    "outbox.relay",
    "wakeup",
}
SQL_CALLS = {"execute", "executemany", "raw", "RunSQL", "RawSQL", "extra"}


def may_execute(module: Module) -> bool:
    """
    Tell whether a module, or a package around it, is one of those that keep SQL.
    """
    return any(module.name == name or module.name.startswith(f"{name}.") for name in ALLOWED_SQL)


def writes(call: ast.Call) -> str | None:
    """
    Name the way in which a call writes a row or an attribute by name, or None.

    A mapping's `update` takes a mapping; a queryset's takes keywords only.
    """
    name = called_name(call)
    if name in ROW_WRITES or name == "setattr":
        return name
    if name == "update" and isinstance(call.func, ast.Attribute):
        if is_attribute_dict(call.func.value):
            return "vars"
        return "update" if not call.args else None
    return None


def is_attribute_dict(node: ast.AST) -> bool:
    """
    Recognise `vars(instance)` and the `__dict__` of another object, which bypass `setattr`.
    """
    if isinstance(node, ast.Call):
        return called_name(node) == "vars"
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return isinstance(node, ast.Attribute) and node.attr == "__dict__" and not is_own


def writes_in(module: Module) -> list[tuple[str, str]]:
    """
    List the places of a module that write, each with its way of writing.

    A `__dict__` counts wherever it is read too: under another name its changes would go unseen.
    A constant key is no state column, whose name the library learns only when a model is bound.
    """
    found = [(module.place(call), way) for call in module.calls() if (way := writes(call))]
    reached = [node for node in module.walk() if isinstance(node, ast.Attribute)]
    subscripts = [node for node in module.walk() if isinstance(node, ast.Subscript)]
    stored = [
        node for node in subscripts if isinstance(node.ctx, ast.Store) and not isinstance(node.slice, ast.Constant)
    ]
    found += [(module.place(node), "vars") for node in reached if is_attribute_dict(node)]
    found += [(module.place(node), "vars") for node in stored if is_attribute_dict(node.value)]
    return found


def test_writer_alone_saves_rows_in_the_core() -> None:
    """
    No module but the writer saves, updates or sets attributes by name, apart from a short list with reasons.
    """
    others = [module for module in modules() if module.name.partition(".")[0] != "writer"]

    found = [
        f"{place} {way}"
        for module in others
        for place, way in writes_in(module)
        if way not in ALLOWED_WRITES.get(module.name, set())
    ]

    assert found == []


def test_list_of_allowed_writes_has_no_idle_entry() -> None:
    """
    An allowance that its module no longer uses is taken back.
    """
    used = {module.name: {way for _, way in writes_in(module)} for module in modules()}

    idle = {name: ways - used[name] for name, ways in ALLOWED_WRITES.items() if name in used and not ways <= used[name]}

    assert idle == {}


def test_raw_sql_is_executed_in_the_named_modules_only() -> None:
    """
    A cursor is used only where the architecture keeps its statements.
    """
    found = [
        f"{module.place(call)} {called_name(call)}"
        for module in modules()
        if not may_execute(module)
        for call in module.calls()
        if called_name(call) in SQL_CALLS
    ]

    assert found == []


def test_raw_sql_is_never_an_f_string() -> None:
    """
    A statement is a named constant; values travel as parameters, never inside the text.
    """
    found = [
        module.place(call)
        for module in modules()
        for call in module.calls()
        if called_name(call) in SQL_CALLS and any(isinstance(argument, ast.JoinedStr) for argument in call.args)
    ]

    assert found == []
