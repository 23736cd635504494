"""Lets ``python -m trialog.trainer`` start the service."""

from trialog.trainer.main import main

main()
