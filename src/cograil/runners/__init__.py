"""Runners: run one attempt of a handler. A WorkItem goes in, an Outcome comes out.

    handler_registry     handlers by name, `@handler`, HandlerSpec
    handler_params       validation of params against the signature; handler_results: of the result
    context              `ctx`, and Channel, its connection to the worker
    handler_steps        `ctx.step`; handler_transaction: `ctx.transaction()`
    handler_log          `ctx.log`; handler_output: captured output and `logging` records
    python_runner        runs a handler in the event loop, a thread or a child process
    process_pool         child processes; process_child runs in one, ipc holds their messages
    builtin_handlers     handlers for tests and demos; http_handler: the handler `http`

This package does not know the database, queues, leases or the order of tasks: it imports neither store nor
verbs. The worker saves state through the Channel that it implements.
"""
