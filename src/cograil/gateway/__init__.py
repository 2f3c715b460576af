"""The gateway: the public API for external callers, and views for operators.

It reads the database with a read-only role and sends every change to the API, with the key of the caller. It has
no key of its own, so an attacker who controls the gateway can do no more than its callers.

    gateway_readiness   startup checks, the probes, and the application
    gateway_context     the context of the routes, and the error format
    upstream_client     the client of the API and the workers
    public_requests     requests of external callers, who do not see jobs; submits of operators
    operator_views      views of jobs for operators
    admin_views         views across jobs, settings and health
    proxy               the proxied paths of the API and of workers
    gateway_schemas     response types for the OpenAPI document
    gateway_openapi     the OpenAPI document
"""
