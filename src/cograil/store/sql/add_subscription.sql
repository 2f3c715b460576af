-- name: add_subscription
-- From the commit on, the events of this tenant are sent to this receiver.
insert into cograil.subscriptions (id, tenant_id, url, types, workflow_id, secret, style, headers, created_by)
values (%(id)s::uuid, %(tenant)s, %(url)s, %(types)s::text[], %(workflow)s, %(secret)s, %(style)s,
        %(headers)s::jsonb, %(by)s)
