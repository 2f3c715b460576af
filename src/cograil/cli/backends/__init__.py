"""The instance as commands see it: one interface, a database or a server behind it.

    interface         what a command can ask of an instance
    database_*        the same in transactions on a PostgreSQL database
    server_*          the same over HTTP, with an API key
    target            which of both this command uses
    server_profiles   servers with a name, in the configuration directory of the user

A command knows the interface only, so its output is the same with both. Both return the views of the store, with
timestamps as datetimes. What a command prints, and in which format, is not decided here.
"""
