"""The benchmark: cograil beside a hand-written batch loop (`floor`) on the same durable PostgreSQL.

`python -m bench` prints a table and writes bench/latest.json. One orchestrator and one worker process,
default settings of PostgreSQL. Machines are noisy: read the ratios of one run.
"""
