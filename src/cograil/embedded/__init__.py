"""The embedded PostgreSQL: its programs, its data directory, the server process and its client programs."""
