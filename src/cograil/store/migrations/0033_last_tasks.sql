-- The last task of a job: with its success the job is over, and whoever records the one records the other.
-- compatible: yes
--
-- `last_at` is the seq of the job when it handed the task out. While that is unchanged nothing has happened that
-- could make another end of it. Null: what the task's end means is decided by an orchestrator, as before.

alter table cograil.tasks add column last_at int;
