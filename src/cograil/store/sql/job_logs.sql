-- name: job_logs
-- Log lines of a job after a position, in the order in which they were stored. A page scans a bounded number of rows,
-- each of several lines; the row without a line says where the scan stopped, if there are more.
with scanned_rows as materialized (
  select id from cograil.task_logs
  where tenant_id = %(tenant)s and job_id = %(job)s::uuid and id >= %(row)s::bigint
    and (%(node)s::text is null or node_id = %(node)s::text)
  order by id limit %(window)s::bigint
), page as (
  select l.id, e.place, l.node_id, l.attempt, e.line
  from scanned_rows join cograil.task_logs l using (id)
  cross join lateral jsonb_array_elements(l.lines) with ordinality e(line, place)
  where (l.id, e.place) > (%(row)s::bigint, %(place)s::bigint)
    and (%(levels)s::text[] is null or lower(e.line ->> 'level') = any(%(levels)s::text[]))
    and (%(text)s::text is null or position(lower(%(text)s::text) in lower(e.line::text)) > 0)
  order by l.id, e.place limit %(limit)s::bigint
)
select id, place, node_id, attempt, line from page
union all
select (select case when count(*) = %(window)s::bigint then max(id) end from scanned_rows), null, null, null, null
