"""
Prove that what the pages under docs/ show runs, and prints what they say it prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model

from django_logic.models import AuditEntry, StatusChange
from django_logic.outbox.models import InboxEntry, OutboxMessage, OutboxTally
from django_logic.outbox.subscribers import forget, subscribers
from tests.scenarios.docs_app.data import fill, forget_background_work
from tests.scenarios.docs_app.page import Block, Project, blocks_of, project, run_page, write_files

DOCS = Path(__file__).parents[2] / "docs"
QUICKSTART = DOCS / "quickstart.md"
PAGES = sorted(page for page in DOCS.rglob("*.md") if not {"adr", "_build"} & set(page.relative_to(DOCS).parts))
WITH_DATA = {DOCS / "reference" / "commands.md", DOCS / "how-to" / "find-writes.md"}
LANGUAGES = {"python", "text", "console", "mermaid", "{toctree}"}


def runs(block: Block) -> bool:
    """
    Tell whether a block is run by this test.
    """
    return block.language == "python"


def name_of(page: Path) -> str:
    """
    Name a page for the report.
    """
    return page.relative_to(DOCS).as_posix()


@contextmanager
def committed_rows() -> Iterator[None]:
    """
    Let a page commit, as a reader would; tables of its own go with its project, what else it wrote is deleted here.
    """
    known = subscribers()
    try:
        yield
    finally:
        for model in (StatusChange, AuditEntry, InboxEntry, OutboxMessage, OutboxTally, get_user_model()):
            model._default_manager.all().delete()
        forget_background_work()
        for entry in subscribers():
            if entry not in known:
                forget(entry.function)


def declare_shop(made: Project) -> None:
    """
    Declare the models of the quickstart, which the other pages go on with.
    """
    for block in blocks_of(QUICKSTART):
        if block.is_declaration:
            assert made.run(QUICKSTART, block) == ""


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("events")
@pytest.mark.parametrize("folder", sorted({page.parent for page in PAGES}), ids=name_of)
def test_pages_run_and_print_what_they_show(
    folder: Path, subtests: pytest.Subtests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Every Python block of a page runs in order and its assertions hold; errors and the output of commands are as shown.

    A folder is one test, since emptying every table after each page would take longer than all of them together.
    """
    forget_background_work()
    for page in (entry for entry in PAGES if entry.parent == folder and any(map(runs, blocks_of(entry)))):
        with subtests.test(page=name_of(page)), committed_rows(), project() as made:
            monkeypatch.chdir(write_files(tmp_path / page.stem, blocks_of(page)))
            if page != QUICKSTART:
                declare_shop(made)
            if page in WITH_DATA:
                fill(made.module)

            wrong = list(run_page(made, page, blocks_of(page)))

            assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_hides_from_the_test(page: Path) -> None:
    """
    Every fence names a language this test knows, at the margin, so that no example is passed over by a slip.
    """
    text = page.read_text(encoding="utf-8")
    blocks = blocks_of(page)

    assert {block.language for block in blocks} <= LANGUAGES
    assert len(re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE)) == 2 * len(blocks)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """
    A link to another page, and to a heading on one, exists.
    """
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]+)?\)", page.read_text(encoding="utf-8"))

    for path, anchor in links:
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), path
        assert not anchor or anchor[1:] in anchors_of(target), f"{path}{anchor}"


def anchors_of(page: Path) -> set[str]:
    """
    Return the anchors of a page's headings, the way GitHub and the built pages name them.
    """
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_there_are_pages() -> None:
    """
    The test has something to run.
    """
    assert QUICKSTART in PAGES
    assert len(PAGES) > 20
