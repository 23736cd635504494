"""The real adapters: event log, blobs and presence on Postgres."""

# The newest migration; named here because Alembic takes a while to import.
REVISION = "0001"
