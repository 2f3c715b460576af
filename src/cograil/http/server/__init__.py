"""The HTTP server: its port, request parsing, routing, limits, error responses and the OpenAPI document.

Routes are in `cograil.http.routes`; nothing here knows what a job is.
"""
