"""A judge to try things out with: a real HTTP server that scores by formula and counts its calls.

Run it with ``python -m trialog.judge.standin --port N``.
"""
