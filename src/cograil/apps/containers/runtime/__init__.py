"""Running containers: a runtime interface with Docker, Podman and a bubblewrap sandbox behind it.

Also what one attempt needs around a container: artifacts in and out, log, checkpoint and workspace.
"""
