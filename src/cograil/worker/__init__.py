"""The loop that runs tasks: claim, run each through a runner, report, heartbeat.

A worker never decides what runs next. It holds a lease, renewed from its own thread so that no handler
can starve it, and learns by the heartbeat what it has lost. `loop.py` claims, runs and drains, `slots.py` knows
what it has room for, `reporter.py` sends outcomes in natural batches, `heartbeat.py` keeps the lease.
`channel.py` is what a handler's `ctx` talks to: `saver.py` keeps its steps, `progress_writer.py` its progress and log
lines, `transactions.py` commits its own SQL with its result.
"""
