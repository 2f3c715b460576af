-- Documents: how often the last stage of one that ended was tried; its nodes say so only while its job is there.
-- compatible: yes

alter table cograil.documents add column attempt int not null default 0;
