"""
Route nothing by default; a test that needs views overrides ROOT_URLCONF.
"""

from __future__ import annotations

from django.urls import URLPattern, URLResolver

urlpatterns: list[URLPattern | URLResolver] = []
