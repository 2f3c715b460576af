-- When a schedule was removed from the file of its workflow: it is kept for its history, and does not run.
-- compatible: yes

alter table cograil.schedules add column left_file_at timestamptz;
update cograil.schedules set left_file_at = paused_at where origin = 'file' and paused_by = 'workflow file';
