-- name: prune_processes
-- Deletes processes that ended long ago, except those whose tasks were not rescued yet.
delete from cograil.processes p
where p.state in ('dead', 'stopped') and p.pulsed_at < now() - %(days)s * interval '1 day'
  and not exists (select 1 from cograil.tasks t where t.worker_id = p.id)
