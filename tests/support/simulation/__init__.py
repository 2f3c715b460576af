"""The engine on virtual time: a model of its tables in memory, and processes that are killed at any statement."""
