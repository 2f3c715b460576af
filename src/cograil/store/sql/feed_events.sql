-- name: feed_events
-- The events that are visible to the second snapshot and not to the first, after a job and number, ordered by job and
-- number: transactions are numbered when they begin to write, not when they commit. Most events are above the bounds
-- of the first snapshot and below those of the second, which decides without a closer check. Events older than a day
-- are left out: the transactions of a restored database may have numbers that are not used yet.
with new_events as materialized (
  select job_id, seq from cograil.events
  where tenant_id = %(tenant)s and xid >= %(since_low)s::bigint and xid < %(until_high)s::bigint
    and at > now() - interval '1 day'
    and (xid >= %(since_high)s::bigint or not pg_visible_in_snapshot(xid::text::xid8, %(since)s::pg_snapshot))
    and (xid < %(until_low)s::bigint or pg_visible_in_snapshot(xid::text::xid8, %(until)s::pg_snapshot))
), page as materialized (
  select job_id, seq from new_events where (job_id, seq) > (%(job)s::uuid, %(seq)s::int)
  order by job_id, seq limit %(limit)s::bigint
)
select e.job_id::text, e.seq, e.type, e.node_id, e.task_id, e.data, e.at
from page p join cograil.events e on e.job_id = p.job_id and e.seq = p.seq
order by p.job_id, p.seq
