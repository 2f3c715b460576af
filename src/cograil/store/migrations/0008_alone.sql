-- Tasks that run alone.
-- compatible: yes
--
-- A node that may lose one more worker before it is failed as poison is handed out alone: its worker holds
-- nothing else, so whatever kills that worker is this task's own doing. Such tasks are rare. They have an
-- index of their own, and are not in the one that every claim walks.

alter table cograil.tasks add column is_alone boolean not null default false;

drop index cograil.tasks_ready;
create index tasks_ready on cograil.tasks (handler, rank, id) where state = 'ready' and not is_alone;
create index tasks_alone on cograil.tasks (rank, id) where state = 'ready' and is_alone;
create index tasks_running_alone on cograil.tasks (worker_id) where state = 'running' and is_alone;
