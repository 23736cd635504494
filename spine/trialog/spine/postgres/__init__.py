"""The real adapters: event log, blobs and presence on Postgres."""
