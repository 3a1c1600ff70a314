"""
The kits of the synchronous benchmark: what each installs and which apps it loads.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """
    Contenders that share one interpreter and one database.
    """

    name: str
    title: str
    module: str
    apps: tuple[str, ...]
    packages: tuple[str, ...] = ()
    requirements: tuple[str, ...] = field(default=())
    needs_redis: bool = False
    has_library: bool = False
    #: The first Python a peer can be installed for.
    least_python: tuple[int, int] = (3, 11)

    @property
    def is_isolated(self) -> bool:
        """
        A peer gets an environment of its own; our kits run where the driver runs.
        """
        return bool(self.requirements)


KITS = (
    Kit(
        name="ours",
        title="this library and its own statement",
        module="ours",
        apps=("django_logic", "kits.ours.apps.OursConfig"),
        has_library=True,
    ),
    Kit(name="raw", title="hand-written statement", module="raw", apps=("kits.raw.apps.RawConfig",)),
    Kit(name="seed", title="the seed's transition_to", module="seed", apps=("kits.seed.apps.SeedConfig",)),
    Kit(
        name="fsm",
        title="django-fsm-2 4.2.4 + django-fsm-log 5.0.2",
        module="fsm",
        apps=("django_fsm_log", "kits.fsm.apps.FsmConfig"),
        packages=("django-fsm-2", "django-fsm-log"),
        requirements=("django-fsm-2==4.2.4", "django-fsm-log==5.0.2"),
    ),
    Kit(
        name="viewflow",
        title="viewflow.fsm 2.4.0",
        module="viewflow",
        apps=("kits.viewflow.apps.ViewflowConfig",),
        packages=("django-viewflow",),
        requirements=("django-viewflow==2.4.0",),
    ),
    Kit(
        name="upstream_0_17_2",
        title="published django-logic 0.17.2",
        module="upstream",
        apps=("django_logic", "django_logic.background", "kits.upstream.apps.UpstreamConfig"),
        packages=("django-logic", "redis"),
        requirements=("django-logic==0.17.2", "redis"),
        needs_redis=True,
    ),
    # Unpinned on purpose: the newest release when the environment is built; --refresh builds it again.
    Kit(
        name="upstream_newest",
        title="published django-logic, newest",
        module="upstream",
        apps=("django_logic", "kits.upstream.apps.UpstreamConfig"),
        packages=("django-logic", "redis"),
        requirements=("django-logic", "redis"),
        needs_redis=True,
    ),
)
