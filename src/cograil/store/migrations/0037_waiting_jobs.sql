-- Jobs of which no worker has anything: what they wait for is kept with them, so that lists can show and find them.
-- compatible: yes
--
-- The engine's own states do not change. Programs of before do not write the column: readers heed it only while
-- the job has not ended, and the next pass of a newer program puts it right.

alter table cograil.jobs add column waiting_for text
  check (waiting_for in ('approval', 'timer', 'retry', 'start'));
create index jobs_waiting on cograil.jobs (tenant_id, status, id) where waiting_for is not null and finished_at is null;

update cograil.jobs set waiting_for = 'start' where status = 'pending' and not_before > now();

with open_nodes as (
  select n.job_id, n.status, n.not_before, w.document -> 'nodes' -> n.node_id ->> 'type' as type
  from cograil.jobs j
  join cograil.nodes n on n.job_id = j.id and n.parent is null
    and n.status in ('ready', 'dispatched', 'running', 'waiting')
  join cograil.workflows w on w.id = j.definition_id
  where j.status = 'running' and not exists (select 1 from cograil.tasks t where t.job_id = j.id)
), reasons as (
  select job_id, case
      when bool_or(status in ('dispatched', 'running') or (status = 'ready' and not_before is null)
        or (status = 'waiting' and type = 'subworkflow')) then null
      when bool_or(type = 'approval') then 'approval'
      when bool_or(status = 'waiting') then 'timer'
      else 'retry' end as waiting_for
  from open_nodes group by job_id
)
update cograil.jobs j set waiting_for = r.waiting_for from reasons r where j.id = r.job_id and r.waiting_for is not null;

do $$
begin
  grant select (waiting_for) on cograil.jobs to cograil_gateway;
exception
  when undefined_object or insufficient_privilege then
    raise notice 'the rights of the gateway could not be set up: %', sqlerrm;
end $$;
