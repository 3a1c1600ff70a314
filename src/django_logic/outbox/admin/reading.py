"""
Rows that are only looked at.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

__all__ = ["OnlyRead"]


class OnlyRead:
    """
    Deny an admin, or an inline of one, to add, change or delete a row.
    """

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """
        Deny: rows are written by moves.
        """
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """
        Deny: what was told may have been read.
        """
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """
        Deny: a row that vanished would be an event that nobody gets; the relay removes what is old.
        """
        return False
