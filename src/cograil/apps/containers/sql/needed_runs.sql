-- name: needed_runs
-- Which of these runs somebody still needs: their node has not ended, and it is not the run of an earlier attempt,
-- or of one that was begun anew elsewhere. One of which nothing is kept yet fetches its files.
select g.job_id::text, g.node_id, g.run
from unnest(%(jobs)s::uuid[], %(nodes)s::text[], %(runs)s::int[]) as g(job_id, node_id, run)
join cograil.jobs j on j.id = g.job_id and j.finished_at is null
left join cograil.nodes n on n.job_id = g.job_id and n.node_id = g.node_id
left join cograil.checkpoints k on k.job_id = g.job_id and k.node_id = g.node_id
where n.finished_at is null
  and (k.data ->> 'run' is null or g.run > (k.data ->> 'run')::int
       or g.run = (k.data ->> 'run')::int and coalesce(k.data ->> 'place', %(place)s) = %(place)s)
