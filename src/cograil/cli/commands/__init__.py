"""The commands of `cograil`, a module for each group.

`cograil.cli` loads a module when one of its commands is called, so a start imports only what it needs.
"""
