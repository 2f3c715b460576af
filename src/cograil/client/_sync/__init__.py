"""The parts of the client of those who wait, written from `awaiting` by `make docs`; do not edit."""
