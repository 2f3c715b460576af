"""The parts of the asynchronous client; `make docs` generates `_sync` from them: see tools/clients.py."""
