"""Kill, stop and disturb real processes at every point of a job's life, and look at what is left.

`fork_server_main.py` is a process that has imported cograil and forks the processes to be killed;
`forked_processes.py` talks to it. `victims.py` is what the forked processes become, `effect_handlers.py` the
handlers they run, `mutants.py` and `more_mutants.py` the mistakes they may be told to make (many of them are
a split transaction: `split_transactions.py`).

`scenarios.py` has the jobs; `child_jobs.py` those with children, `held_jobs.py` those that limits, pauses or
people hold back, `retained_data.py` those that keep something, `sql_submissions.py` those from SQL,
`bulk_operations.py` those that change other jobs, `exclusive_tasks.py` those that run alone. `lane.py` is one
database with its processes, `crash.py` one run of one point. `pairs.py` is one run of two points,
`clients.py`, `operator_actions.py` and `schedule_firings.py` of a client (with `client_strikes.py`),
`app_primitives.py` of an app, which is `app.py`, `callers.py` and `remote_workers.py` of a server (with
`caller_sessions.py`), `relays.py` of a relay, `sweepers.py` of a sweeper.

`oracles.py` is what must hold after a run, `enumeration.py` all points of a scenario, `point_coverage.py`
which points need none, by `reachable.py`. `results.py` keeps the figures, `page.py` writes them into
docs/explanation/crash-points.md.

Nothing here is a mock: the processes are `cograil orchestrator` and its like, the requests go over real
sockets, the signals are real, the PostgreSQL is real. The one thing turned by hand is the clock of a lease:
when a worker is dead or stopped its lease is ended at once instead of after 15 s, and so is a relay's claim.
"""
