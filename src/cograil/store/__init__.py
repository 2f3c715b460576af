"""SQL, and the only users of the driver.

One function per statement; the statements are the named files in `sql/`, which can be read and pasted as
they are. Functions take a `Transaction` first and never commit. The store decides nothing: a guard in a
WHERE clause says whether a move took effect, and the function returns that. `migrate.py` updates the
schema.
"""
