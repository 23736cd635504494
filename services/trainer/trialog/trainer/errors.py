"""What can go wrong in the trainer, by the boundary crossed.

TrainerError
├── LearnerError               a learner cannot take a step
│   ├── UnknownLearnerError    no learner of that name
│   ├── BatchError             a batch out of order, or with something in it that is no reward
│   └── CheckpointError        bytes that are not the weights they are said to be
├── StepConflictError          the step was applied before, to other inputs
└── PolicyHostError            the actor could not be asked
    ├── HostUnavailableError   no cluster to connect to within the time allowed
    └── HostTimeoutError       the cluster is there, but the step did not end in time
"""

from __future__ import annotations


class TrainerError(Exception):
    """Base of the trainer's errors."""


class LearnerError(TrainerError):
    """A learner refused its input; trying again changes nothing."""


class UnknownLearnerError(LearnerError):
    """The configuration names a learner that this build does not have."""


class BatchError(LearnerError):
    """A batch that must not be trained on."""


class CheckpointError(LearnerError):
    """Weights whose bytes do not match their digest, or do not parse."""


class StepConflictError(TrainerError):
    """A step that was applied is asked for again with other inputs."""


class PolicyHostError(TrainerError):
    """The policy's actor was not reached. The step may have been applied in its memory, which
    harms nothing: memory is a cache, and a repeated request has the same result."""


class HostUnavailableError(PolicyHostError):
    """There is no cluster at the address, or it does not let us in."""


class HostTimeoutError(PolicyHostError):
    """The step was not done in time."""
