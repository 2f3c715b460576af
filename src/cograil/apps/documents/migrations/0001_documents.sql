-- Documents: their jobs, and how they ended; counters; settings that were changed while it ran.
-- compatible: no
--
-- A document is known by its key in its folder forever, also after its job was deleted: the same document again is held
-- until an operator decides. What happens while the job runs is in its nodes; its end is written here once.

create table documents (
  tenant_id     text not null default 'default',
  folder        text not null,  -- the data directory, and the part of it
  key           text not null,
  job_id        uuid not null,
  name          text not null,
  staged        text not null,  -- the name of the file when it was taken
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
  attempt       int not null default 0,  -- tries of its last stage; its nodes are deleted with its job
  primary key (tenant_id, folder, key)
);
create index documents_open on documents (folder) where state is null;
create index documents_changed on documents (folder, changed_at);

create table document_counts (
  tenant_id  text not null default 'default',
  folder     text not null,
  what       text not null,
  count      bigint not null,
  primary key (tenant_id, folder, what)
);

create table document_config (
  tenant_id   text not null default 'default',
  name        text not null,
  value       jsonb not null,
  changed_at  timestamptz not null default now(),
  primary key (tenant_id, name)
);
