"""Ways to run one attempt: a WorkItem goes in, an Outcome comes out.

    registry.py   handlers by name, `@handler`, what we know of each (HandlerSpec)
    params.py     the parameters of a handler, checked against its signature before it runs
    context.py    `ctx`: what a handler may ask and tell while it runs; Channel, its line to the worker
    log.py        the lines of `ctx.log`: bounded, without control characters
    python.py     run a handler in the event loop or in a thread; exceptions become outcomes here
    builtin.py    handlers for tests and demos; importing it registers them

Nothing here knows the database, a queue, a lease or what runs next: no import of store or verbs.
What must be remembered goes through the Channel that the worker implements.
"""
