"""Every change of state: submit, advance, claim, report, cancel, retry, publish and others.

A verb takes the transaction first and never commits: the caller at the edge (a loop, a command, a route)
opens the transaction. The verb lets the store lock and load, the engine decide, and `persist` write. A lost
race is a return value. An invalid or late request raises a `CograilError`. SQL belongs to `store/`,
decisions about jobs to `engine/`.
"""
