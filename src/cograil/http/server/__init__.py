"""The HTTP server: its port, request parsing, routing, limits, error responses and the OpenAPI document.

`port` binds a socket and serves an ASGI application. `uvicorn_protocol` parses bytes. `dispatcher` finds the
route, authenticates the caller, parses the body and calls the route. `application` assembles all routes.
Routes themselves are in `cograil.http.routes`; nothing else here knows what a job is.
"""
