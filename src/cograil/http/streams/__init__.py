"""Live data over HTTP: server-sent events, WebSockets, and waiting for the end of a job."""
