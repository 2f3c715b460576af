-- name: add_schedule
insert into cograil.schedules (tenant_id, name, workflow_id, version, input, due_input, priority, cron, timezone,
                               overlap, missed, next_at, created_by, origin)
values (%(tenant)s, %(name)s, %(workflow)s, %(version)s, %(input)s::jsonb, %(due_input)s, %(priority)s, %(cron)s,
        %(timezone)s, %(overlap)s, %(missed)s, %(next_at)s, %(by)s, %(origin)s)
on conflict (tenant_id, name) do nothing
returning pg_notify('cograil_schedules', '')
