"""The spine's ports in memory, for tests and simulations: the same verdicts without a server.

tests/conformance holds them and the real ones to one suite. The bus has no twin: what matters of
it is how the real one fails.
"""
