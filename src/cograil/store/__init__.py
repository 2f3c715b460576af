"""SQL, and the only users of the driver.

One function per statement; the statements are the named files in `sql/`, readable and paste-able as
they are. Functions take a `Transaction` first and never commit. Nothing here decides anything: a
guard in a WHERE clause says whether a move landed, and the function returns that. `embedded.py`
starts the PostgreSQL of the wheel, `migrate.py` brings the schema up to date.
"""
