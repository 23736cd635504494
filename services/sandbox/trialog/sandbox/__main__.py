"""Lets ``python -m trialog.sandbox`` start the service."""

from trialog.sandbox.main import main

main()
