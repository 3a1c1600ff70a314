"""
A cache that can be told to fail, as one on another machine does.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.core.cache.backends.filebased import FileBasedCache


class LostCache(FileBasedCache):
    """
    Answer until the connection is lost.
    """

    is_lost: ClassVar[bool] = False

    def add(self, *args: Any, **kwargs: Any) -> bool:
        """
        Add a key, or fail.
        """
        self.refuse_when_lost()
        return bool(super().add(*args, **kwargs))

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """
        Read a key, or fail.
        """
        self.refuse_when_lost()
        return super().get(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> bool:
        """
        Delete a key, or fail.
        """
        self.refuse_when_lost()
        return bool(super().delete(*args, **kwargs))

    def refuse_when_lost(self) -> None:
        """
        Raise what a lost connection raises.
        """
        if type(self).is_lost:
            raise ConnectionError("the cache is gone")
