"""
Promises of `django_logic.graph`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any
from xml.etree import ElementTree

import pytest
from django.utils.functional import lazystr

from django_logic import Action, Process, ProcessManager, Transition, graph
from django_logic.binding import ModelProcessBinding
from django_logic.graph import Kind
from tests.app.models import Grade, Level, Order, Parcel
from tests.app.process import LevelProcess, OrderProcess

NASTY = [
    "say \"hi\" and 'bye'",
    "two\nlines\r\nhere",
    "colon: semi; comma, dot.",
    "[brackets] {braces} (round)",
    "a --> b",
    "<script>alert(1)</script>",
    "&amp; &#35; #35; #quot;",
    "100% %s %%comment",
    "naïve 文字 🎉",
    "back\\slash \\n \\N",
    "trailing\\",
    "| pipe | ``` ~~ __init__ _em_ **strong**",
    "1. list",
    "- bullet",
    "end note",
    "direction LR",
    "class s0 current",
    "$x^2$ @user :smile:",
    "<<fork>>",
    "\x00nul \x1b[31m",
    "half \ud800 pair",
]


class Working(Transition):
    """
    A transition with a busy state, as work in the background declares it.
    """

    is_background = True

    def __init__(self, *arguments: Any, busy: Any, **slots: Any) -> None:
        super().__init__(*arguments, **slots)
        object.__setattr__(self, "in_progress_state", busy)


class ShopProcess(Process):
    """
    Every kind of arrow.
    """

    transitions = [
        Transition("place", sources=["draft"], target="placed"),
        Working("fulfil", sources=["placed"], target="fulfilled", busy="fulfilling", failed_state="broken"),
        Transition("cancel", sources=["draft", "placed"], target="cancelled", failed_state="broken"),
        Transition("void", sources=["draft", "placed"], target="cancelled"),
        Action("inspect", sources=["placed"]),
    ]


def nasty_process() -> type[Process]:
    """
    Make a process whose states and labels are as nasty as can be.
    """
    edges = [
        Transition(f"act{place}", sources=[text], target=NASTY[place - 1], label=text)
        for place, text in enumerate(NASTY)
    ]
    return type("NastyProcess", (Process,), {"transitions": edges})


def arrows(source: Any, **choice: Any) -> set[tuple[Any, Any, Kind, tuple[str, ...]]]:
    """
    Return a diagram's arrows as plain values.
    """
    return {(a.source.value, a.target.value, a.kind, a.labels) for a in graph.read(source, **choice).arrows}


def marks(source: Any, **choice: Any) -> dict[Any, list[str]]:
    """
    Return what is special about each state.
    """
    return {state.value: state.marks for state in graph.read(source, **choice).states}


def unescaped(text: str) -> str:
    """
    Return a Mermaid label as Mermaid shows it.
    """
    return re.sub(r"#(\d+);", lambda found: chr(int(found[1])), text)


def test_diagram_has_an_arrow_for_each_way_a_state_can_change() -> None:
    """
    Moves, starts of work, failures and actions are told apart, and actions that share a way share its arrow.
    """
    found = arrows(ShopProcess)

    assert found == {
        ("draft", "placed", Kind.MOVE, ("place",)),
        ("placed", "fulfilling", Kind.START, ("fulfil",)),
        ("fulfilling", "fulfilled", Kind.MOVE, ("fulfil",)),
        ("fulfilling", "broken", Kind.FAILURE, ("fulfil",)),
        ("draft", "cancelled", Kind.MOVE, ("cancel", "void")),
        ("placed", "cancelled", Kind.MOVE, ("cancel", "void")),
        ("draft", "broken", Kind.FAILURE, ("cancel",)),
        ("placed", "broken", Kind.FAILURE, ("cancel",)),
        ("placed", "placed", Kind.ACTION, ("inspect",)),
    }


def test_diagram_marks_what_each_state_is() -> None:
    """
    Current, initial, terminal, busy and failed states are marked; the initial one is the field's default.
    """
    binding = ModelProcessBinding(Parcel, ShopProcess, "parcel_status")

    plain, bound = marks(ShopProcess, state="placed"), marks(binding)

    assert plain == {
        "draft": [],
        "placed": ["current"],
        "fulfilled": ["terminal"],
        "fulfilling": ["in progress"],
        "broken": ["terminal", "failed"],
        "cancelled": ["terminal"],
    }
    assert bound["new"] == ["initial", "undeclared"]


def test_diagram_of_an_object_marks_its_state() -> None:
    """
    An object's process brings its state along, an unknown one included; `state=` takes its place.
    """
    order, lost = Order(status="approved"), Order(status="asdf")

    found = marks(order.process), marks(lost.process), marks(order.process, state="draft")

    assert found == (
        {"draft": ["initial"], "approved": ["current"], "cancelled": ["terminal"]},
        {"draft": ["initial"], "approved": [], "cancelled": ["terminal"], "asdf": ["current", "undeclared"]},
        {"draft": ["current", "initial"], "approved": [], "cancelled": ["terminal"]},
    )


def test_diagram_of_one_field_leaves_the_other_out() -> None:
    """
    Two processes of one model make two diagrams that don't mix.
    """
    parcel = Parcel(payment_status="paid", parcel_status="new")

    payment, parcel_own = marks(parcel.payment), marks(parcel.parcel)

    assert payment == {"new": ["initial"], "paid": ["current"], "refunded": ["terminal"]}
    assert parcel_own == {"new": ["current", "initial"], "packed": ["terminal"]}


def test_zero_none_and_empty_text_are_states_like_any_other() -> None:
    """
    States that are false are drawn, marked and told apart.
    """

    class Odd(Process):
        transitions = [
            Transition("start", sources=[None, ""], target=0),
            Transition("reset", sources=[0], target=""),
            Transition("forget", sources=["", 0], target=None),
        ]

    texts = [state.text for state in graph.read(Odd).states]
    found = [marks(Odd, state=state)[state] for state in (None, "", 0)]

    assert texts == ["None", "''", "0"]
    assert found == [["current"]] * 3
    assert all("current" not in told for told in marks(Odd).values())


def test_integer_states_carry_the_label_of_their_choice() -> None:
    """
    A number is shown with its label; a label that only repeats the value is not.
    """
    binding = ModelProcessBinding(Level, LevelProcess, "state")

    texts = [state.text for state in graph.read(binding, state=Grade.BRONZE).states]
    order = [state.text for state in graph.read(ModelProcessBinding(Order, OrderProcess, "status")).states]

    assert texts == ["0 (None)", "1 (Bronze)"]
    assert marks(binding, state=Grade.BRONZE) == {0: ["initial"], 1: ["current"]}
    assert order == ["draft", "approved", "cancelled"]


def test_wildcard_with_a_failed_state_is_drawn() -> None:
    """
    A move from everywhere that may fail has its arrows, and none from the failed state to itself.
    """

    class Wild(Process):
        transitions = [
            Transition("open", sources=["new"], target="open"),
            Transition("close", sources="*", target="closed", failed_state="broken"),
        ]

    found = arrows(Wild)

    assert {(source, kind) for source, _target, kind, labels in found if labels == ("close",)} == {
        ("new", Kind.MOVE),
        ("new", Kind.FAILURE),
        ("open", Kind.MOVE),
        ("open", Kind.FAILURE),
        ("broken", Kind.MOVE),
    }
    assert marks(Wild)["closed"] == ["terminal"]


def test_exclude_and_only_choose_actions() -> None:
    """
    A noisy action is left out with the states only it reaches; what the others are does not change.
    """
    without = marks(ShopProcess, exclude=["cancel", "void"])
    only = arrows(ShopProcess, only=["place"], exclude="void")

    assert set(without) == {"draft", "placed", "fulfilled", "fulfilling", "broken"}
    assert only == {("draft", "placed", Kind.MOVE, ("place",))}
    assert marks(ShopProcess, only="place") == {"draft": [], "placed": []}


@pytest.mark.parametrize("choice", [{"exclude": ["cancl"]}, {"only": ["cancl"]}])
def test_unknown_action_in_a_choice_is_refused_with_the_nearest_name(choice: dict[str, Any]) -> None:
    """
    A filter that names no action would silently draw everything, or nothing.
    """
    with pytest.raises(ValueError, match=r"ShopProcess has no action 'cancl'\. Did you mean 'cancel'\?"):
        graph.read(ShopProcess, **choice)


def test_anything_but_a_process_is_refused() -> None:
    """
    A model or its object says what to pass instead.
    """
    with pytest.raises(TypeError, match="a Process class, a binding or an object's process"):
        graph.mermaid(Order())  # type: ignore[arg-type]


def test_lazy_labels_are_drawn_as_text() -> None:
    """
    A translated label is text in every format.
    """

    class Labelled(Process):
        transitions = [Transition("go", sources=["a"], target="b", label=lazystr("Losfahren"))]

    texts = [graph.mermaid(Labelled), graph.dot(Labelled), graph.table(Labelled), graph.markdown(Labelled)]

    assert all("Losfahren" in text for text in texts)
    assert json.loads(json.dumps(graph.data(Labelled)))["transitions"][0]["label"] == "Losfahren"


def test_mermaid_text_is_the_whole_diagram() -> None:
    """
    The source names states and arrows once, marks start, end and the current state, and words the arrows.
    """
    text = graph.mermaid(ShopProcess, state="placed", exclude=["void"])

    assert text == (
        '---\ntitle: "ShopProcess"\n---\nstateDiagram-v2\n'
        '    state "draft" as s0\n'
        '    state "placed" as s1\n'
        '    state "fulfilled" as s2\n'
        '    state "fulfilling" as s3\n'
        '    state "broken" as s4\n'
        '    state "cancelled" as s5\n'
        "    s0 --> s1 : place\n"
        "    s0 --> s5 : cancel\n"
        "    s0 --> s4 : cancel (fails)\n"
        "    s1 --> s5 : cancel\n"
        "    s1 --> s3 : fulfil (starts)\n"
        "    s1 --> s4 : cancel (fails)\n"
        "    s1 --> s1 : inspect (stays)\n"
        "    s3 --> s2 : fulfil\n"
        "    s3 --> s4 : fulfil (fails)\n"
        "    s2 --> [*]\n"
        "    s4 --> [*]\n"
        "    s5 --> [*]\n"
        "    classDef failed stroke:#c62828,stroke-width:2px\n"
        "    class s4 failed\n"
        "    classDef busy stroke-dasharray:5 4\n"
        "    class s3 busy\n"
        "    classDef current fill:#ffd54f,color:#000,stroke:#000,stroke-width:3px\n"
        "    class s1 current\n"
    )


def test_mermaid_start_is_the_default_of_the_field() -> None:
    """
    A bound field's default is where the diagram begins.
    """
    text = graph.mermaid(ModelProcessBinding(Order, OrderProcess, "status"))

    assert "    [*] --> s0\n" in text
    assert 'title: "app.Order.status: OrderProcess"' in text


def test_mermaid_labels_hold_no_syntax() -> None:
    """
    Whatever a state or label says stays in its place, and reads the same once Mermaid has decoded it.
    """
    diagram = graph.read(nasty_process())

    text = graph.mermaid(nasty_process())

    shown = re.findall(r'^    state "([^"\n]*)" as s\d+$', text, re.MULTILINE)
    worded = re.findall(r"^    s\d+ --> s\d+ : ([^\n]*)$", text, re.MULTILINE)
    assert [unescaped(label) for label in shown] == [state.text for state in diagram.states]
    assert {unescaped(label) for label in worded} == {arrow.labels[0] for arrow in diagram.arrows}
    assert not any(re.search(r"[<>\[\]{}|`*%:\"]|--|;(?<!\d;)|direction\s", label) for label in [*shown, *worded])
    assert len(text.splitlines()) == 4 + 2 * len(NASTY)


def test_dot_marks_states_and_arrows() -> None:
    """
    Failures, starts and actions have styles of their own; the end has a second border, the present a colour.
    """
    text = graph.dot(ModelProcessBinding(Parcel, ShopProcess, "parcel_status"), state="placed")

    lines = {line.strip() for line in text.splitlines()}
    assert "start -> s0;" in lines
    assert 's2 [label="placed", style="rounded,filled", fillcolor="#ffd54f", penwidth=3];' in lines
    assert 's6 [label="cancelled", style="rounded", peripheries=2];' in lines
    assert 's2 -> s4 [label="fulfil", style=dashed];' in lines
    assert 's4 -> s5 [label="fulfil", style=dashed, color="#c62828", fontcolor="#c62828"];' in lines
    assert 's2 -> s2 [label="inspect", style=dotted];' in lines
    assert 's1 -> s6 [label="cancel\\nvoid"];' in lines


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz (the program dot) is not installed")
def test_graphviz_shows_nasty_labels_to_the_letter() -> None:
    """
    Graphviz reads the DOT text and draws every label as it was declared.
    """
    diagram = graph.read(nasty_process())

    drawn = subprocess.run(["dot", "-Tsvg"], input=graph.dot(nasty_process()).encode(), capture_output=True, check=True)  # noqa: S607

    svg = ElementTree.fromstring(drawn.stdout)  # noqa: S314
    found = {(node.text or "").replace("\xa0", " ") for node in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {state.text for state in diagram.states} <= found
    assert {arrow.labels[0] for arrow in diagram.arrows} <= found


def test_dot_strings_are_closed() -> None:
    """
    A quote or backslash in a label can't end its string.
    """
    text = graph.dot(nasty_process())

    without_strings = re.sub(r'"(?:[^"\\\n]|\\.)*"', "S", text)
    assert '"' not in without_strings
    assert len(text.splitlines()) == 4 + 2 * len(NASTY)


def test_table_is_aligned_for_every_script() -> None:
    """
    Columns start at the same place in each line, counted as a terminal shows them.
    """

    class Mixed(Process):
        transitions = [
            Transition("go", sources=["文字", "é"], target="b"),
            Transition("stop", sources=["b"], target="c"),
        ]

    text = graph.table(Mixed, state="b")

    assert text == (
        "Mixed\n\n"
        "State  Marks\n"
        "-----  --------\n"
        "文字\n"
        "é\n"
        "b      current\n"
        "c      terminal\n\n"
        "Action  From     To  Declared by\n"
        "------  -------  --  -----------\n"
        "go      文字, é  b   Mixed\n"
        "stop    b        c   Mixed\n"
    )


def test_table_names_guards_failures_and_work() -> None:
    """
    A row of the table says all that is declared; columns nobody uses are left out.
    """
    moves = graph.table(ShopProcess).split("\n\n")[2].splitlines()

    assert moves[0].split() == [
        "Action",
        "From",
        "To",
        "In",
        "progress",
        "On",
        "failure",
        "Background",
        "Declared",
        "by",
    ]
    assert moves[3].split() == ["fulfil", "placed", "fulfilled", "fulfilling", "broken", "yes", "ShopProcess"]
    assert moves[6].split() == ["inspect", "placed", "(stays)", "ShopProcess"]
    assert "is_staff_member, has_stock" in graph.table(OrderProcess)


def test_markdown_cells_hold_no_syntax() -> None:
    """
    A pipe, a line break or markup in a label can't break the table.
    """
    text = graph.markdown(nasty_process())

    rows = [line for line in text.splitlines() if line.startswith("|")]
    states, moves = len(NASTY) + 2, len(NASTY) + 2
    widths = [len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows]
    assert widths == [3] * states + [6] * moves
    assert not re.search(r"(?<!\\)(?:\\\\)*[<*`\[$@]", "".join(rows))


def test_data_is_what_json_can_hold() -> None:
    """
    The same facts as plain data, states as they are stored.
    """
    found = graph.data(ModelProcessBinding(Level, LevelProcess, "state"), state=0)

    assert json.loads(json.dumps(found)) == found
    assert (found["model"], found["field"], found["process_name"]) == ("app.Level", "state", "process")
    assert found["process"] == "tests.app.process.LevelProcess"
    assert found["states"][0] == {"value": 0, "text": "0 (None)", "marks": ["current", "initial"]}
    assert found["transitions"][1]["sources"] == [1]
    assert found["transitions"][1]["target"] == 0


def test_every_bound_process_can_be_drawn_in_every_format() -> None:
    """
    Whatever the registry holds is a source of diagrams.
    """
    texts = [write(graph.read(binding)) for binding in ProcessManager.bindings for write in graph.WRITERS.values()]

    assert all(text.endswith("\n") and not text.endswith("\n\n") for text in texts)
