-- What handlers keep and finish by themselves.

-- The steps of an attempt that are done (`ctx.step`): the next attempt of the node does not do them again.
create table cograil.steps (
  job_id     uuid not null,
  node_id    text not null,
  name       text not null,
  tenant_id  text not null default 'default',
  attempt    int not null,
  output     json not null,
  saved_at   timestamptz not null default now(),
  primary key (job_id, node_id, name)
);

alter table cograil.steps enable row level security;
create policy tenant on cograil.steps using (tenant_id = nullif(current_setting('cograil.tenant', true), ''));

-- The report of an attempt from inside a handler's own transaction (`ctx.transaction`). True: this commits
-- with whatever else the transaction did. False: the attempt is no longer this worker's, roll back.
-- A role of handlers needs this function and nothing else of ours:
--   grant usage on schema cograil to ROLE; grant execute on function cograil.report to ROLE;
create function cograil.report(the_task bigint, the_fence int, the_worker bigint, worker_name text, the_output json)
returns boolean language sql security definer set search_path = '' as $$
  with mine as materialized (
    select t.id from cograil.tasks t
    where t.id = the_task and t.fence = the_fence and t.worker_id = the_worker and t.state = 'running' for update
  ), done as (
    delete from cograil.tasks t where t.id = any(array(select id from mine))
    returning t.id, t.tenant_id, t.job_id, t.node_id, t.attempt, t.fence, t.started_at
  ), told as (
    insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, started_at, output)
    select tenant_id, job_id, 'report', node_id, attempt, id, fence, worker_name, started_at, the_output from done
  ), noted as (
    select pg_catalog.pg_notify('cograil_news', '') from done
  )
  select count(*) = 1 from noted
$$;
revoke all on function cograil.report(bigint, int, bigint, text, json) from public;
