"""The routes of the API, a module for each resource.

A route parses its parameters, calls a verb or a query in one transaction and returns an API schema.
Every change is recorded in the audit log in the same transaction. No SQL and no decision about the
state of a job belongs here.
"""
