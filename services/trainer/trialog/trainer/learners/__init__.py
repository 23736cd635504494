"""Learners, one file each, behind the port of ``trialog.trainer.learner``."""
