"""The port: what answers over HTTP.

So far the probes only. `probes.py` says whether a process lives and is ready, `server.py` binds the
port and serves an ASGI application on it in the loop that is running. What the checks are is decided
by whoever wires a process; nothing here knows of loops, workers or the database.
"""
