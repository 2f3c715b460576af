"""The parts of the synchronous client, generated from `_async` by `make docs`; do not edit."""
