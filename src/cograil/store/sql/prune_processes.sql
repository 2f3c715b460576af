-- name: prune_processes
-- Processes that ended long ago. One whose tasks were not rescued yet is needed for that.
delete from cograil.processes p
where p.state in ('dead', 'stopped') and p.pulsed_at < now() - %(days)s * interval '1 day'
  and not exists (select 1 from cograil.tasks t where t.worker_id = p.id)
