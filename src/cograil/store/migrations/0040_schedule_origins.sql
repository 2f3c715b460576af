-- Where a schedule comes from: somebody created it, or it is in the file of its workflow.
-- compatible: yes

alter table cograil.schedules
  add column origin text not null default 'user' check (origin in ('user', 'file'));
