"""Kill, stop and disturb real processes at every point of a job's life, and look at what is left.

`zygote.py` is a process that has imported cograil and forks the processes to be killed; `victims.py` is
what those become, `deeds.py` the handlers they run, `mutants.py` the mistakes they may be told to make.
`nursery.py` talks to the zygote. `scenarios.py` has the jobs, `lane.py` one database with its processes,
`crash.py` one run of one point (`clients.py` of a client, `pairs.py` of two), `oracles.py` what must hold
after it, `enumeration.py` all points of a scenario. `results.py` keeps the figures, `page.py` writes them
into docs/crash-points.md.

Nothing here is a mock: the processes are `cograil orchestrator` and `cograil worker`, the signals are
real, the PostgreSQL is real. The one thing turned by hand is the clock of a lease: when a worker is dead
or stopped its lease is ended at once instead of after 15 s.
"""
