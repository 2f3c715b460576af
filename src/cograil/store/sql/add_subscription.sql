-- name: add_subscription
-- From its commit on, what happens to this tenant is told there.
insert into cograil.subscriptions (id, tenant_id, url, types, workflow_id, secret, style, headers, created_by)
values (%(id)s::uuid, %(tenant)s, %(url)s, %(types)s::text[], %(workflow)s, %(secret)s, %(style)s,
        %(headers)s::jsonb, %(by)s)
