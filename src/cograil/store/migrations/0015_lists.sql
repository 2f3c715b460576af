-- Lists of jobs: the newest of a tenant's jobs of one status, without walking over all the others.
-- compatible: yes
--
-- With the status in an index, a move that changes it writes a new entry into each index of jobs. Most did
-- before, for want of room in the page.

create index jobs_status on cograil.jobs (tenant_id, status, id);
