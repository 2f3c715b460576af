"""Kill, stop and disturb real processes at every point of a job's life, and look at what is left.

`zygote.py` is a process that has imported cograil and forks the processes to be killed; `victims.py` is
what those become, `deeds.py` the handlers they run, `mutants.py` and `slips.py` the mistakes they may be
told to make. `nursery.py` talks to the zygote. `scenarios.py` has the jobs (`families.py` those with
children, `holding.py` those that something holds back, `keeping.py` those that keep something, `opening.py`
those from SQL, `many.py` those that do something to others), `lane.py` one database with its processes,
`crash.py` one run of one point (`pairs.py` of two, `clients.py` and `answers.py` of a client, with
`striking.py`; `grants.py` of an app, which is `app.py`; `callers.py` and `far.py` of a server, with
`doors.py`; `relays.py` of a relay), `oracles.py` what must hold after it, `enumeration.py` all points of a
scenario, `listed.py` which points need none. `results.py` keeps the figures, `page.py` writes them into
docs/explanation/crash-points.md.

Nothing here is a mock: the processes are `cograil orchestrator` and its like, the requests go over real
sockets, the signals are real, the PostgreSQL is real. The one thing turned by hand is the clock of a lease:
when a worker is dead or stopped its lease is ended at once instead of after 15 s, and so is a relay's claim.
"""
