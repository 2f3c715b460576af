"""The parts of the client of those who await; `waiting` is written from them: see tools/clients.py."""
