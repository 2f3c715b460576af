-- name: spread_of_children
-- How many children of each fan-out completed, and how many ended otherwise, in each of `buckets` time intervals.
select parent, width_bucket(extract(epoch from finished_at)::double precision,
         %(first)s::double precision, %(last)s::double precision, %(buckets)s) as bucket,
       count(*) filter (where status = 'completed'), count(*) filter (where status <> 'completed')
from cograil.nodes
where tenant_id = %(tenant)s and job_id = %(job)s::uuid and parent is not null and finished_at is not null
group by parent, bucket
