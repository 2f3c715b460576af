-- Lines in front of limits: who waits and who has a place are found without a look at the others.
-- compatible: yes
--
-- Before this, each look at a limit read all that wait under it, so a long line was slow as a whole. A job
-- leaves the line, or its place, in the transaction that ends it; what earlier programs left is removed here.

create index admissions_waiting on cograil.admissions (limit_key, rank, job_id) where admitted_at is null;
create index admissions_admitted on cograil.admissions (limit_key) where admitted_at is not null;
drop index cograil.admissions_key;

delete from cograil.admissions a
where not exists (select 1 from cograil.jobs j where j.id = a.job_id and j.finished_at is null);
