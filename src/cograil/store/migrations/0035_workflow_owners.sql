-- Workflows that belong to an app: only the app starts jobs of them, and only they name its handlers.
-- compatible: yes
--
-- Null: a workflow of users. What apps published before has the ids that are theirs from here on.

alter table cograil.workflows add column app text;

update cograil.workflows
set app = case workflow_id when 'cograil.bulk' then 'cograil' else substr(workflow_id, length('cograil.') + 1) end
where workflow_id in ('cograil.bulk', 'cograil.captures', 'cograil.companies', 'cograil.containers', 'cograil.documents');
