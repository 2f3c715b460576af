"""The HTTP API.

    server     port, parsing, routing, limits, error responses, OpenAPI document
    auth       API keys, client addresses, allowed hosts
    routes     one module for each resource; a route calls a verb or a query in one transaction
    streams    server-sent events, WebSockets, waiting for the end of a job

SQL is in `cograil.store`, changes of state are in `cograil.verbs`: neither belongs here.
"""
