"""Lets ``python -m trialog.judge`` start the service."""

from trialog.judge.main import main

main()
