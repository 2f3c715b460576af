-- name: add_audits
insert into cograil.audit_log (tenant_id, key_id, user_id, role, action, target, request_id, address, data)
select * from unnest(%(audit_tenant)s::text[], %(audit_key)s::text[], %(audit_user)s::uuid[], %(audit_role)s::text[],
  %(audit_action)s::text[], %(audit_target)s::text[], %(audit_request)s::text[], %(audit_address)s::text[],
  %(audit_data)s::json[])
