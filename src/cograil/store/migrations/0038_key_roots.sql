-- Idempotency keys that outlive their job: a retry goes on with the keys of what had not completed.
-- compatible: yes
--
-- Null for most: the key of a node is then that of its own job, as before. Programs of before hand out such keys to
-- retries too, until they are replaced.

alter table cograil.jobs add column key_roots jsonb;
alter table cograil.tasks add column key_root text;
