-- Documents: which jobs they are, and how they ended; what was counted; what was configured while it ran.
-- compatible: yes
--
-- A document is known by its key in its folder for good, also when its job was deleted long ago: what comes again is
-- held until somebody decides. What happens while the job runs is in its nodes; how it ended is written here once.

create table cograil.documents (
  tenant_id     text not null default 'default',
  folder        text not null,  -- which data directory, and whose part of it
  key           text not null,
  job_id        uuid not null,
  name          text not null,
  staged        text not null,  -- what the file was called when it was taken
  size_bytes    bigint not null,
  profile       jsonb not null,
  created_at    timestamptz not null default now(),
  changed_at    timestamptz not null default now(),
  state         text check (state in ('DONE', 'ERROR_PREP', 'ERROR_OCR', 'ERROR')),  -- null while it runs
  out_pdf       text,
  message       text not null default '',
  pages         int,
  pdf_invalid   int not null default 0,
  prep_skipped  boolean not null default false,
  ocr_skipped   boolean not null default false,
  primary key (tenant_id, folder, key)
);
create index documents_open on cograil.documents (folder) where state is null;
create index documents_changed on cograil.documents (folder, changed_at);

create table cograil.document_counts (
  tenant_id  text not null default 'default',
  folder     text not null,
  what       text not null,
  count      bigint not null,
  primary key (tenant_id, folder, what)
);

create table cograil.document_config (
  tenant_id   text not null default 'default',
  name        text not null,
  value       jsonb not null,
  changed_at  timestamptz not null default now(),
  primary key (tenant_id, name)
);

do $$
declare
  name text;
begin
  foreach name in array array['documents', 'document_counts', 'document_config'] loop
    execute format('alter table cograil.%I enable row level security', name);
    execute format($p$create policy tenant on cograil.%I using
      (tenant_id = nullif(current_setting('cograil.tenant', true), ''))$p$, name);
    if exists (select 1 from pg_roles where rolname = 'cograil_engine') then
      execute format('alter table cograil.%I owner to cograil_engine', name);
    end if;
  end loop;
  grant select, insert, update, delete on cograil.documents, cograil.document_counts, cograil.document_config
    to cograil_server;
exception
  when undefined_object or insufficient_privilege then
    raise notice 'the roles of documents could not be set up: %', sqlerrm;
end $$;
