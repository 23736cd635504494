"""What a stack is started with."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trialog.cli.stack.errors import BadStackOptions

_MOST_PROCESSES = 64


def _no_env() -> dict[str, str]:
    return {}


def _no_service_env() -> dict[str, Mapping[str, str]]:
    return {}


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """Size and shape of an embedded stack.

    `data_dir` None means a temporary folder that is deleted at the end. `api_port` 0 means a free
    port (the one of last time where possible). `service_env` adds settings for one kind of
    service, e.g. `{"sandbox": {"TRIALOG_CONCURRENCY": "2"}}`. `migrate` None migrates the
    database exactly when there are services.
    """

    data_dir: Path | None = None
    drivers: int = 1
    sandboxes: int = 2
    judges: int = 2
    trainers: int = 1
    api_host: str = "127.0.0.1"
    api_port: int = 0
    api_key: str | None = None
    with_ray: bool = True
    with_services: bool = True
    migrate: bool | None = None
    sandbox_concurrency: int = 4
    judge_concurrency: int = 8
    ray_cpus: int = 2
    ray_object_store_bytes: int = 128 * 1024 * 1024
    extra_env: Mapping[str, str] = field(default_factory=_no_env)
    service_env: Mapping[str, Mapping[str, str]] = field(default_factory=_no_service_env)

    @property
    def migrates(self) -> bool:
        """Whether the database is migrated before the services start."""
        return self.with_services if self.migrate is None else self.migrate

    def check(self) -> None:
        """Raise BadStackOptions, naming the option, when these cannot be started."""
        for name in ("drivers", "sandboxes", "judges", "trainers"):
            count = getattr(self, name)
            if not 0 <= count <= _MOST_PROCESSES:
                raise BadStackOptions(f"{name} must be from 0 to {_MOST_PROCESSES}, not {count}")
        for name in ("sandbox_concurrency", "judge_concurrency", "ray_cpus"):
            if getattr(self, name) < 1:
                raise BadStackOptions(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.api_port <= 65535:
            raise BadStackOptions(f"api_port must be from 0 to 65535, not {self.api_port}")
        try:
            address = ipaddress.ip_address(self.api_host)
        except ValueError:
            raise BadStackOptions(
                f"api_host must be an IP address to bind to, not {self.api_host!r}"
            ) from None
        if not address.is_loopback and not self.api_key:
            raise BadStackOptions(
                f"api_host {self.api_host} is reachable from other machines: set an API key"
            )
        if self.with_services and self.trainers and not self.with_ray:
            raise BadStackOptions("a trainer needs Ray: set trainers=0 or with_ray=True")
