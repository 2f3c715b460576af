-- Approvals, subworkflows, `when`.
--
-- A child job knows its parent (jobs.parent_job, parent_node) and the node that waits knows its child. They
-- talk by rows in each other's inbox: `child` when the child ended, `cancel` when the parent did. `signal` is
-- a person's answer, already checked.

alter table cograil.nodes add column child_job uuid;
alter table cograil.nodes drop constraint nodes_skip_reason_check;
alter table cograil.nodes add constraint nodes_skip_reason_check
  check (skip_reason in ('branch', 'upstream_failed', 'when'));

alter table cograil.inbox drop constraint inbox_kind_check;
alter table cograil.inbox add constraint inbox_kind_check
  check (kind in ('report', 'started', 'lost', 'late', 'more', 'signal', 'child', 'cancel'));

-- Only on what never changes in a job: its end must touch no index.
create index jobs_parent on cograil.jobs (parent_job) where parent_job is not null;
