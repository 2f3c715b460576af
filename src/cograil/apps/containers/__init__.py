"""Container jobs: run one container with input and output files, and report it by signed events.

`jobs`, `queries`, `status`, `request`, `schemas` and `routes` are the API of container jobs; `standalone_port` serves
it on a port of its own. `worker_lifespan` and `sweeper` run beside a worker. `runtime` runs the containers: it must
not know about container jobs.
"""
