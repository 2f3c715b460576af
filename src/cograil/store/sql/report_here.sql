-- name: report_here
-- The report of an attempt as the last statement of its handler's own transaction: see migration 0003.
select cograil.report(%(task)s::bigint, %(fence)s::int, %(worker)s::bigint, %(name)s::text, %(output)s::json)
