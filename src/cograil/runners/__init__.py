"""Ways to run one attempt: a WorkItem goes in, an Outcome comes out.

    registry.py     handlers by name, `@handler`, what we know of each (HandlerSpec)
    params.py       the parameters of a handler, checked against its signature before it runs
    context.py      `ctx`: what a handler may ask and tell while it runs; Channel, its line to the worker
    steps.py        `ctx.step`: done once, kept for later attempts
    transaction.py  `ctx.transaction()`: the handler's own SQL and its result commit together
    log.py          the lines of `ctx.log`: bounded, without control characters
    results.py      what a handler returned, checked; exceptions.py what it may raise or meet
    python.py       run a handler in the event loop, a thread or a child; exceptions become outcomes here
    children.py     the child processes of a worker; child.py is what runs in one, wire.py what they say
    runtime.py      what runs containers, whichever it is; choosing.py which
    containers.py   an engine, through the Docker Engine API; kernel_log.py what podman does not tell
    sandbox/        a runtime of our own, for machines without an engine
    builtin.py      handlers for tests and demos; importing it registers them

Nothing here knows the database, a queue, a lease or what runs next: no import of store or verbs.
What must be remembered goes through the Channel that the worker implements.
"""
