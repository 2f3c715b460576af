"""The orchestrator: the loop that advances jobs and rescues the tasks of dead workers.

Any number of orchestrators may run; none leads. An orchestrator holds the row lock of a job for one
transaction. Inputs that it held when it died are still in the inbox. `retention_sweep.py` deletes
expired jobs and creates partitions beside the loop.

The package decides nothing about jobs: `verbs.advance` and the engine do. It must not contain SQL.
"""
