"""How numbers become claims: pure functions on arrays, no files, nothing else of Tare.

The unit of replication is a session: one trial of one cell in one block. `docs/method.md` explains
the method and its sources.
"""
