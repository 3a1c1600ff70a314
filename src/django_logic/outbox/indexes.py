"""
The index of open deliveries.
"""

from __future__ import annotations

from typing import Any

from django.db import models

__all__ = ["OpenRows"]


class OpenRows(models.Index):
    """
    Index the open rows only; where the database can't, all of them with the open ones apart.
    """

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **keywords: Any) -> Any:
        """
        Write the index for the database at hand.
        """
        if schema_editor.connection.features.supports_partial_indexes:
            return super().create_sql(model, schema_editor, using, **keywords)
        whole = models.Index(fields=["is_open", *self.fields], name=self.name)
        return whole.create_sql(model, schema_editor, using, **keywords)
