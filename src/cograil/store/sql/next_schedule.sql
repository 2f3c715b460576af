-- name: next_schedule
select extract(epoch from min(next_at) - now())::double precision
from cograil.schedules where next_at is not null and paused_at is null
