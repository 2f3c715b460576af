"""How the command line shows jobs, events and figures to people.

Nothing here reads the database or changes anything: values go in, text comes out.
"""
