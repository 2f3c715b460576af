-- name: report_in_transaction
-- Reports an attempt as the last statement of its handler's own transaction.
select cograil.report(%(task)s::bigint, %(fence)s::int, %(worker)s::bigint, %(name)s::text, %(output)s::json) as is_counted
