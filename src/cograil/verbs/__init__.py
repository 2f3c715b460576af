"""Every change of state, one transaction each: submit, advance, claim, report, cancel, retry, publish.

A verb takes the transaction first, lets the store lock and read, the engine decide, and the store
write; it never commits. Whoever is at the edge (a loop, a command, later a route) opens the
transaction. Answers come from the verb's own transaction: a lost race is a return value, a caller
who is wrong or too late gets a `CograilError`.
"""
