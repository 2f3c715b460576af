"""Live data over HTTP: server-sent events, WebSockets, waiting for the end of a job, and throttling."""
