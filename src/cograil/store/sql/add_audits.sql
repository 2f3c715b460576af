-- name: add_audits
insert into cograil.audit_log (tenant_id, key_id, user_id, role, action, target, request_id, address, data)
select * from unnest(%(audited_tenant)s::text[], %(audited_key)s::text[], %(audited_user)s::uuid[], %(audited_role)s::text[],
  %(audited_action)s::text[], %(audited_target)s::text[], %(audited_request)s::text[], %(audited_address)s::text[],
  %(audited_data)s::json[])
