"""The worker: claim tasks, run each through a runner, report the outcome, renew the lease.

    worker_loop      the loop: claim, run, follow, drain
    task_claimer     claims, including tasks that run exclusively; worker_slots counts free slots
    held_attempt     one attempt, from its claim until its report is recorded
    reporter         sends outcomes in batches
    heartbeat        renews the lease from its own thread; loop_watchdog detects a blocked event loop
    context_channel  the worker's side of a handler's `ctx`; behind it are step_writer, progress_writer
                     and worker_transactions

A worker never decides what runs next: that is the engine's work. Nothing here changes the state of a job
except through `cograil.verbs`.
"""
