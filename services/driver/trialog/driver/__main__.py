"""Lets ``python -m trialog.driver`` start the service."""

from trialog.driver.main import main

main()
