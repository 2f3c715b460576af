-- name: doctor_clocks
-- Processes whose clock is wrong, according to their last heartbeat.
select kind || ' ' || name || ' ' || round((info ->> 'clock_offset_seconds')::numeric, 1) || ' s'
from cograil.processes
where state in ('alive', 'draining') and abs((info ->> 'clock_offset_seconds')::float8) > %(grace)s
