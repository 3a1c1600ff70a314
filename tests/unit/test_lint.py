"""
Promises of `django_logic.lint`: a write that goes past the process is found, whatever is not one is left alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import django_logic
from django_logic import lint
from django_logic.binding import ModelProcessBinding
from tests.app.models import Base, Child, Order, Product, Sale
from tests.app.process import DocumentProcess, OrderProcess

ORDERS = [ModelProcessBinding(Order, OrderProcess, "status")]

WRITES = {
    "DL001": [
        "order.status = 'paid'",
        "order.status += 'x'",
        "order.status: str = 'paid'",
        "first, order.status = 1, 2",
        "[*rest, order.status] = values",
        "a = b = order.status = 1",
        "for order.status in states: pass",
        "with manager() as order.status: pass",
        "[0 for order.status in states]",
        "self.order.status = 1",
        "invoice.order.status = 1",
        "Order.objects.get(pk=1).status = 1",
        "order = Order.objects.get(pk=1)\norder.status = 1",
        "order, made = Order.objects.get_or_create(pk=1)\norder.status = 1",
        "o = get_object_or_404(Order, pk=1)\no.status = 1",
        "o = cast(Order, found)\no.status = 1",
        "o = OrderFactory()\no.status = 1",
        "o = OrderService.load(1)\no.status = 1",
        "o = Product() if x else Order()\no.status = 1",
        "from shop.models import Order as O\no = O.objects.first()\no.status = 1",
        "from shop import models\no = models.Order()\no.status = 1",
        "if (o := Order()):\n    o.status = 1",
        "match found:\n    case o:\n        o.status = 1",
        "def move(o: Order): o.status = 1",
        "def move(o: 'Order | None'): o.status = 1",
        "def move(o: Optional[Order]): o.status = 1",
        "def move(orders: list[Order]):\n    for o in orders: o.status = 1",
        "def move(o: Any): o.status = 1",
        "def move(o): o.status = 1",
        "T = TypeVar('T')\ndef move(o: T): o.status = 1",
        "Sold = Order | Product\ndef move(o: Sold): o.status = 1",
        "class Sellable(Protocol):\n    status: str\ndef move(o: Sellable): o.status = 1",
        "def outer():\n    o = Order()\n    def inner(): o.status = 1",
        "class Order(Model):\n    def close(self): self.status = 1",
        "class Order(Model):\n    def close(self):\n        def later(): self.status = 1",
        "class Special(Order):\n    def close(self): self.status = 1",
        "class Special(Middle): \n    def close(self): self.status = 1\nclass Middle(Order): pass",
    ],
    "DL002": [
        "setattr(order, 'status', 1)",
        "FIELD = 'status'\nsetattr(order, FIELD, 1)",
        "lambda order: setattr(order, 'status', 1)",
        "object.__setattr__(order, 'status', 1)",
        "order.__setattr__('status', 1)",
        "order.__dict__['status'] = 1",
        "vars(order)['status'] = 1",
    ],
    "DL003": [
        "Order.objects.update(status=1)",
        "Order.objects.filter(pk=1).exclude(pk=2).update(note='', status=1)",
        "Order.objects.late().update(status=1)",
        "rows.update(**{'status': 1})",
        "values = {'status': 1}\nrows.update(**values)",
        "values = {**others, 'status': 1}\nrows.update(**values)",
        "rows.update(**dict(status=1))",
        "async def move(): await rows.aupdate(status=1)",
        "customer.orders.filter(pk=1).update(status=1)",
        "Order.objects.filter(product__in=Product.objects.all()).update(status=1)",
        "class OrderQuerySet(QuerySet):\n    def close(self): return self.update(status=1)",
        "class Orders(models.Manager['Order']):\n    def close(self): return self.filter(pk=1).update(status=1)",
        "class Orders(OrderQuerySet):\n    def close(self): return self.update(status=1)",
        "class ClosingMixin:\n    def close(self): return self.update(status=1)",
        "class Order(Model):\n    @classmethod\n    def close(cls): cls.objects.update(status=1)",
        "Order = apps.get_model('shop', 'Order')\nOrder.objects.update(status=1)",
        "rows = Order.objects.all()\nrows = rows.filter(pk=1)\nrows.update(status=1)",
    ],
    "DL004": [
        "Order.objects.bulk_update(orders, ['status'])",
        "Order.objects.bulk_update(orders, fields=('note', 'status'))",
        "FIELDS = ['note'] + ['status']\nrows.bulk_update(orders, FIELDS)",
        "async def move(): await rows.abulk_update(orders, ['status'])",
        "rows.bulk_create(orders, update_conflicts=True, update_fields=['status'], unique_fields=['pk'])",
    ],
    "DL005": [
        "Order.objects.update_or_create(pk=1, defaults={'status': 1})",
        "Order.objects.update_or_create({'status': 1}, pk=1)",
        "Order.objects.update_or_create(pk=1, defaults=dict(status=1))",
        "values = {'status': 1}\nOrder.objects.aupdate_or_create(pk=1, defaults=values)",
    ],
}
if sys.version_info >= (3, 12):
    WRITES["DL001"] += [
        "def move[T](o: T): o.status = 1",
        "type Sold = Order | Product\ndef move(o: Sold): o.status = 1",
    ]

NO_WRITES = [
    # births
    "Order(status=1)",
    "Order.objects.create(status=1)",
    "Order.objects.get_or_create(pk=1, defaults={'status': 1})",
    "Order.objects.bulk_create([Order(status=1)])",
    "Order.objects.update_or_create(pk=1, create_defaults={'status': 1})",
    "Order.objects.update_or_create(status=1, defaults={'note': 1})",
    # reads
    "Order.objects.filter(status=1)",
    "Order.objects.filter(status=1).update(note=1)",
    "print(order.status)",
    "order.save(update_fields=['status'])",
    "del order.status",
    # other fields and names
    "order.note = 1",
    "setattr(order, 'note', 1)",
    "setattr(order, name, 1)",
    "status = 1",
    "row['status'] = 1",
    "order.status: str",
    "Order.objects.bulk_update(orders, ['note'])",
    # other classes
    "class Ticket(Model):\n    def close(self): self.status = 1",
    "class Form(forms.Form):\n    def close(self):\n        def later(): self.status = 1",
    "class CloseMixin:\n    def close(self): self.status = 1",
    "product.status = 1",
    "self.product.status = 1",
    "products.update(status=1)",
    "def answer(response: HttpResponse): response.status = 1",
    "def answer(response: 'Response | None'): response.status = 1",
    "response = HttpResponse()\nresponse.status = 1",
    "order = Mock()\norder.status = 1",
    "o = Product.objects.get(pk=1)\no.status = 1",
    "o = get_object_or_404(Product, pk=1)\no.status = 1",
    "for o in Product.objects.all(): o.status = 1",
    "Product.objects.filter(order__status=1).update(status=1)",
    "Product.objects.bulk_update(orders, ['status'])",
    "rows = Product.objects.all()\nrows = rows.filter(pk=1)\nrows.update(status=1)",
    "class Payload(BaseModel):\n    status: str\npayload = Payload()\npayload.status = 1",
    # dicts
    "values = {}\nvalues.update(status=1)",
    "values = dict(a=1)\nvalues.update(status=1)",
    "def call(**keywords): keywords.update(status=1)",
    "def call(values: dict[str, object]): values.update(status=1)",
    "values.update({'status': 1})",
]


def codes(text: str) -> list[str]:
    """
    Return the codes of what is found in a text about orders.
    """
    return [finding.code for finding in lint.check_text(text, lint.watch(ORDERS)) if not finding.allowed]


@pytest.mark.parametrize(("code", "text"), [(code, text) for code, texts in WRITES.items() for text in texts])
def test_write_past_the_process_is_found(code: str, text: str) -> None:
    """
    Each way to write a bound field has one finding, under the code of its rule.
    """
    found = codes(text)

    assert found == [code]


@pytest.mark.parametrize("text", NO_WRITES)
def test_what_is_no_write_of_a_bound_field_is_left_alone(text: str) -> None:
    """
    Births, reads, other fields, other classes and dicts are no findings.
    """
    found = codes(text)

    assert found == []


def test_every_rule_is_tested_and_described() -> None:
    """
    The documented rules are those that are found.
    """
    assert set(lint.RULES) == {"DL000", *WRITES}


def test_finding_says_where_what_and_what_to_do() -> None:
    """
    A finding is one line an editor can open, which names the write, the field, the models and the way out.
    """
    text = "import x\n\nif x:\n    found.status = 'paid'\n"
    watched = lint.watch([*ORDERS, ModelProcessBinding(Sale, OrderProcess, "status")])

    (finding,) = lint.check_text(text, watched, path="shop/views.py")

    assert str(finding) == (
        "shop/views.py:4:5: DL001 `found.status` writes 'status', a state of app.Order, app.Sale,"
        " past its process. Run an action or transition_to(), or say why not: # dl: allow <reason>."
    )


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("order.status = 1", "app.Order"),
        ("sales.update(status=1)", "app.Sale"),
        ("Sale.objects.update(status=1)", "app.Sale"),
        ("class Special(Order):\n    def close(self): self.status = 1", "app.Order"),
        ("found.status = 1", "app.Order, app.Sale"),
    ],
)
def test_finding_names_the_models_that_are_meant(text: str, labels: str) -> None:
    """
    Where the text tells which of several bound models is written, the others are not named.
    """
    watched = lint.watch([*ORDERS, ModelProcessBinding(Sale, OrderProcess, "status")])

    (finding,) = lint.check_text(text, watched)

    assert f"a state of {labels}, past its process" in finding.text


@pytest.mark.parametrize(
    "text",
    [
        "order.status = 1  # dl: allow the import restores states",
        "order.status = 1  # noqa: X1 # dl: allow the import restores states",
        "order.status = 1  #dl:allow - the import restores states",
        "order.status = (  # dl: allow the import restores states\n    1\n)",
        "order.status = (\n    1\n)  # dl: allow the import restores states",
    ],
)
def test_write_with_a_reason_is_allowed(text: str) -> None:
    """
    A comment on any line of the statement allows it, and its reason is kept.
    """
    (finding,) = lint.check_text(text, lint.watch(ORDERS))

    assert finding.allowed == "the import restores states"
    assert str(finding).endswith("(allowed: the import restores states)")


@pytest.mark.parametrize(
    "text",
    [
        "order.status = 1  # dl: allow",
        "order.status = 1  # dl: allow -",
        "# dl: allow the import restores states\norder.status = 1",
        "order.status = '# dl: allow the import restores states'",
        "for order.status in x:\n    pass  # dl: allow the import restores states",
        "order.status = 1  # dl: allowed by nobody",
    ],
)
def test_write_without_a_reason_of_its_own_is_not_allowed(text: str) -> None:
    """
    A reason is required, in a comment, on the write's own lines.
    """
    found = codes(text)

    assert found == ["DL001"]


def test_comment_without_a_reason_is_told_so() -> None:
    """
    Whoever forgot the reason reads that it is missing.
    """
    (finding,) = lint.check_text("order.status = 1  # dl: allow", lint.watch(ORDERS))

    assert finding.text.endswith("The comment that allows it needs a reason.")


@pytest.mark.parametrize(
    "text",
    ["for x in (\n", "a\x00b", "(" * 5000, "-" * 100_000 + "x", "x = '", "print 'x'", "def f():\n\tx\n        y"],
)
def test_text_that_can_not_be_parsed_is_a_finding(text: str) -> None:
    """
    A file that could not be audited is never taken for a clean one.
    """
    (finding,) = lint.check_text(text, lint.watch(ORDERS))

    assert finding.code == "DL000"
    assert "\n" not in str(finding)


def test_warning_of_the_compiler_is_no_finding() -> None:
    """
    An invalid escape is another tool's matter, even where warnings are errors.
    """
    assert codes(r"pattern = '\d'") == []


def test_file_is_read_in_its_own_encoding(tmp_path: Path) -> None:
    """
    The declared encoding counts; bytes that don't fit it are a finding.
    """
    latin, broken = tmp_path / "latin.py", tmp_path / "broken.py"
    latin.write_bytes("# -*- coding: latin-1 -*-\norder.status = 'bezahlt für'".encode("latin-1"))
    broken.write_bytes("order.status = 'bezahlt für'".encode("latin-1"))

    found = [lint.check_file(path, lint.watch(ORDERS))[0].code for path in (latin, broken)]

    assert found == ["DL001", "DL000"]


def test_family_of_a_bound_model_is_watched() -> None:
    """
    Parents, children and proxies of a bound model hold its field; models beside it don't.
    """
    watched = lint.watch([ModelProcessBinding(Base, DocumentProcess, "state"), *ORDERS])

    held = {name: entry.classes for name, entry in watched.fields.items()}

    assert held["state"] >= {Base.__name__, Child.__name__}
    assert held["status"] >= {"Order", "OrderProxy"}
    assert held["status"] & {"Product", "Base", "Child"} == set()
    assert watched.fields["state"].labels == ("app.Base",)


def test_field_of_one_model_is_no_field_of_another() -> None:
    """
    A bound model's own name does not make another model's field its state.
    """
    watched = lint.watch([ModelProcessBinding(Base, DocumentProcess, "state"), *ORDERS])

    found = lint.check_text("def move(order: Order, base: Base):\n order.state = 1\n base.status = 1", watched)

    assert found == []


def test_model_that_only_shares_its_name_is_left_alone(tmp_path: Path) -> None:
    """
    An Order of another app is told from the bound one by where it is imported from, or written.
    """
    here = tmp_path / "models.py"
    watched = lint.watch(ORDERS)
    both = lint.Watch(
        fields=watched.fields,
        models=watched.models | {"legacy.models.Order"},
        holders=watched.holders,
        modules={str(here.resolve()): "legacy.models"},
    )
    own = "class Order(Model):\n    def close(self): self.status = 1"

    found = [
        lint.check_text("from legacy.models import Order\no = Order()\no.status = 1", both),
        lint.check_text(own, both, path=str(here)),
    ]
    bound = [
        lint.check_text("from tests.app.models import Order\no = Order()\no.status = 1", both),
        lint.check_text(own, both),
    ]

    assert found == [[], []]
    assert [len(findings) for findings in bound] == [1, 1]


def test_nothing_bound_means_nothing_found() -> None:
    """
    Without bindings no field is a state.
    """
    assert lint.check_text("order.status = 1", lint.watch([])) == []


def test_project_files_are_found_and_nothing_else(tmp_path: Path) -> None:
    """
    Hidden folders, virtual environments, installed packages, caches and migrations are not the project's text.
    """
    wanted = ["a.py", "shop/models.py", "shop/stubs.pyi", "shop/tests/test_a.py"]
    unwanted = [".tox/a.py", "env/a.py", "lib/site-packages/a.py", "node_modules/a.py", "__pycache__/a.py", "a.txt"]
    for name in (*wanted, *unwanted, "shop/migrations/0001.py", "env/pyvenv.cfg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")

    found = found_below(tmp_path)
    with_migrations = found_below(tmp_path, migrations=True)
    without_tests = found_below(tmp_path, exclude=["tests"])
    without_shop = found_below(tmp_path, exclude=["shop/*.py", "*.pyi"])

    assert found == wanted
    assert with_migrations == sorted([*wanted, "shop/migrations/0001.py"])
    assert without_tests == wanted[:3]
    assert without_shop == ["a.py"]


def found_below(root: Path, *, exclude: tuple[str, ...] | list[str] = (), migrations: bool = False) -> list[str]:
    """
    Return what is read below a folder, as sorted relative paths.
    """
    found = lint.python_files([root], exclude=exclude, migrations=migrations)
    return sorted(path.relative_to(root).as_posix() for path in found)


def test_file_that_is_named_is_read_once_wherever_it_lies(tmp_path: Path) -> None:
    """
    Whoever names a migration wants it read; naming it twice reads it once.
    """
    migration = tmp_path / "migrations" / "0001.py"
    migration.parent.mkdir()
    migration.write_text("")

    found = list(lint.python_files([migration, migration.parent, migration]))

    assert found == [migration]


def test_library_is_never_read() -> None:
    """
    The library's own writes are its writer's business, however it is named.
    """
    package = Path(django_logic.__file__).parent

    assert list(lint.python_files([package, package / "writer.py"])) == []


def test_real_models_of_the_tests_are_recognised() -> None:
    """
    A table's model is bound as well, and a model without a process is another class.
    """
    watched = lint.watch()

    found = lint.check_text("def move(sale: Sale, product: Product):\n sale.status = 1\n product.status = 1", watched)

    assert [finding.line for finding in found] == [2]
    assert {Sale.__name__, Order.__name__} <= watched.fields["status"].classes
    assert Product.__name__ not in watched.fields["status"].classes
