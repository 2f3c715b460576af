-- name: doctor_news_waiting
-- L2: jobs that have inbox rows or are due, and that no orchestrator advanced within the grace period.
select i.job_id::text from cograil.inbox i
where i.at < now() - %(grace)s * interval '1 second' group by i.job_id
union
select j.id::text from cograil.jobs j
where j.wake_at is not null and j.wake_at < now() - %(grace)s * interval '1 second'
