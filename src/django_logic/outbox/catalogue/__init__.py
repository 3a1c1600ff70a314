"""
Every event the code can emit, told from the declarations alone: no row is read and no hook runs.

What a project writes by hand, with ``OutboxMessage.objects.create()``, nobody can know beforehand.
"""

from __future__ import annotations

from django_logic.outbox.catalogue.asyncapi import asyncapi, worded
from django_logic.outbox.catalogue.comparison import Differences, compared
from django_logic.outbox.catalogue.emissions import Emission, Kind, emissions_of
from django_logic.outbox.catalogue.entries import Emitter, Entry, Shape
from django_logic.outbox.catalogue.finding import catalogue
from django_logic.outbox.catalogue.schemas import json_schema, payload_schema

__all__ = [
    "Differences",
    "Emission",
    "Emitter",
    "Entry",
    "Kind",
    "Shape",
    "asyncapi",
    "catalogue",
    "compared",
    "emissions_of",
    "json_schema",
    "payload_schema",
    "worded",
]
