"""Read models: the pure fold of events into the documents that the API shows.

A document is plain JSON and the whole state of its fold: it is loaded from its table and folded on.
It holds the position of its last event, and events up to there pass by, so folding a batch twice
is folding it once. Constant work an event, and documents that do not grow with a run's history: a
run keeps totals, what happened in a step is the step's, what happened to a trial is the trial's.
A document given to a fold is used up by it.
"""

from trialog.driver.views.documents import Doc, timestamp
from trialog.driver.views.run import RUN_ENDED, evolve_run
from trialog.driver.views.step import STEP_ENDED, evolve_step, step_of
from trialog.driver.views.trial import TRIAL_ENDED, adopted, evolve_trial, trial_of

__all__ = [
    "RUN_ENDED",
    "STEP_ENDED",
    "TRIAL_ENDED",
    "Doc",
    "adopted",
    "evolve_run",
    "evolve_step",
    "evolve_trial",
    "step_of",
    "timestamp",
    "trial_of",
]
