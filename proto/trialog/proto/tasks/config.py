"""``task.toml``: the settings of a task, schema 1.0 to 1.4 of the Harbor format.

Names and defaults are the format's. Keys that nobody reads are kept apart, for a warning
(``model_extra``); what is refused is refused by ``check`` with the mend, not by this model.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Seconds = Annotated[float, Field(gt=0, le=365 * 86_400, allow_inf_nan=False)]
_MOST_MIB = 1 << 24
User = str | int
NetworkMode = Literal["no-network", "public", "allowlist"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class Healthcheck(_Table):
    """A command that must come to exit with 0 before the agent begins; times in seconds."""

    command: str
    interval_sec: Seconds = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    start_interval_sec: Seconds = 5.0
    retries: int = Field(default=3, ge=1)


class Network(_Table):
    """What a table asks for. ``network_mode`` None: it does not say; ours is then none at all."""

    network_mode: NetworkMode | None = None
    allowed_hosts: list[str] | None = None


class Environment(Network):
    """What a sandbox is made from and with: image, resources (MiB), variables, health."""

    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = None
    os: str = "linux"
    cpus: Annotated[float, Field(gt=0, le=4096, allow_inf_nan=False)] | None = None
    memory_mb: int | None = Field(default=None, gt=0, le=_MOST_MIB)
    storage_mb: int | None = Field(default=None, gt=0, le=_MOST_MIB)
    gpus: int | None = None
    gpu_types: list[str] | None = None
    tpu: dict[str, Any] | None = None
    mcp_servers: list[dict[str, Any]] = []
    env: dict[str, str] = {}
    skills_dir: str | None = None
    healthcheck: Healthcheck | None = None
    workdir: str | None = None


class Agent(Network):
    """The agent's limit (None: the run's ``timeouts.trial_s``) and whom it acts as."""

    timeout_sec: Seconds | None = None
    user: User | None = None


class Collect(_Table):
    """A command run after the agent ended, so that artifacts can be taken."""

    command: str
    service: str = "main"
    timeout_sec: Seconds = 60.0
    user: User | None = None


class Verifier(Network):
    """How it is graded. ``environment_mode`` None: separate if there is an environment."""

    timeout_sec: Seconds = 600.0
    env: dict[str, str] = {}
    user: User | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: Environment | None = None
    collect: list[Collect] = []

    @property
    def mode(self) -> Literal["shared", "separate"] | None:
        """The mode that this table asks for, None when it asks for none."""
        if self.environment_mode is not None:
            return self.environment_mode
        return "separate" if self.environment is not None else None


class Artifact(_Table):
    """A file or folder of the sandbox that is kept, and in separate mode graded."""

    source: str
    destination: str | None = None
    exclude: list[str] = []
    service: str | None = None


class Solution(_Table):
    """Variables of the oracle's solution."""

    env: dict[str, str] = {}


class Step(_Table):
    """One step of a multi-step task: its own instruction below ``steps/<name>/``."""

    name: str
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    min_reward: float | dict[str, float] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: list[Artifact] = []

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, given: Any) -> Any:
        return _with_artifacts(given)


class TaskConfig(_Table):
    """A whole task.toml. Legacy spellings are read by ``parse`` before this."""

    schema_version: str = "1.4"
    task: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}
    source: str | None = None
    verifier: Verifier = Verifier()
    agent: Agent = Agent()
    environment: Environment = Environment()
    solution: Solution = Solution()
    steps: list[Step] = []
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    artifacts: list[Artifact] = []

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, given: Any) -> Any:
        return _with_artifacts(given)

    def mode(self, step: Step | None = None) -> Literal["shared", "separate"]:
        """Return how it is graded: the step's mode, else the task's, else shared."""
        return (step.verifier.mode if step else None) or self.verifier.mode or "shared"


def _with_artifacts(given: Any) -> Any:
    """An artifact may be given as its source alone."""
    if not isinstance(given, dict) or not isinstance(given.get("artifacts"), list):  # pyright: ignore[reportUnknownMemberType]
        return given  # pyright: ignore[reportUnknownVariableType]
    plain = [{"source": one} if isinstance(one, str) else one for one in given["artifacts"]]  # pyright: ignore[reportUnknownVariableType]
    return {**given, "artifacts": plain}
