-- name: list_runs
-- Its runs, newest first, and whether their jobs are still kept.
select r.job_id::text, r.trigger, r.attempt, r.created_at, r.started_at, r.finished_at, r.status, r.error, r.is_abnormal,
       r.sources_success_count, r.sources_failed_count, exists (select 1 from cograil.jobs j where j.id = r.job_id)
from cograil_companies.company_runs r
where r.tenant_id = %(tenant)s and r.siren = %(siren)s
order by r.created_at desc limit %(limit)s
