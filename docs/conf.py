"""
Build these pages with Sphinx: ``make docs``. Nothing in a built page is fetched from elsewhere.
"""

from __future__ import annotations

from typing import Any

from pygments.lexers.special import TextLexer

project = "django_logic"
author = "The django_logic contributors"
project_copyright = author
language = "en"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True

myst_heading_anchors = 3

html_theme = "furo"
html_title = "django_logic"
html_copy_source = False
html_show_sourcelink = False


def setup(app: Any) -> None:
    """
    Show Mermaid source as it is: a host that draws it does so, and every such diagram stands beside one in plain text.
    """
    app.add_lexer("mermaid", TextLexer)
