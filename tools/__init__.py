"""Tools for people who work on cograil. Not shipped."""
