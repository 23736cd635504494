-- The event log and what stands beside it. Owned by the migrating role; the services' role may
-- SELECT and EXECUTE, nothing else (docs/invariants.md, I1).

create table head (
    partition    integer primary key,
    position     bigint not null default 0,
    hash         bytea not null default '\x',
    owner        bigint,
    owner_fence  bigint not null default 0,
    lease_until  timestamptz not null default '-infinity'
);
comment on table head is 'End of each partition of the log, and the driver that owns it.';

create table event (
    partition      integer not null,
    position       bigint not null,
    event_id       uuid not null,
    run_id         text not null,
    type           text not null,
    schema_version smallint not null,
    data           json not null,
    trace_parent   text,
    recorded_at    timestamptz not null,
    body_hash      bytea not null,
    prev_hash      bytea not null,
    hash           bytea not null,
    primary key (partition, position)
);
create unique index event_id_key on event (event_id);
create index event_run on event (run_id, position);
-- By default a row of 2 KB is compressed and toasted, at half the speed.
alter table event set (toast_tuple_target = 4096);

create table blob (
    digest bytea primary key,
    bytes  bytea not null
);

create table run (
    run_id    text primary key,
    partition integer not null,
    position  bigint not null,
    root      text not null,
    state     text not null check (state in ('running', 'paused', 'ended')),
    pauses    integer not null default 0
);
create index run_root on run (root, position);

create table budget (
    run_id            text primary key,
    calls             bigint,
    tokens            bigint,
    microusd          bigint,
    spent_calls       bigint not null default 0,
    spent_tokens      bigint not null default 0,
    spent_microusd    bigint not null default 0,
    reserved_calls    bigint not null default 0,
    reserved_tokens   bigint not null default 0,
    reserved_microusd bigint not null default 0
) with (fillfactor = 50);
comment on table budget is
    'Of runs that have one: the limits (null: none), what is spent, and what calls that are out may cost.';

create table work (
    key          text primary key,
    kind         text not null,
    run_id       text not null,
    partition    integer not null,
    position     bigint not null,
    fence        bigint not null default 0,
    incarnation  bigint,
    lease_until  timestamptz not null default '-infinity',
    failures     integer not null default 0,
    injected     integer not null default 0,
    lost         integer not null default 0,
    sweeps       integer not null default 0,
    breakdowns   integer not null default 0,
    dead         boolean not null default false,
    reoffer      boolean not null default false,
    not_before   timestamptz not null default '-infinity',
    closed       boolean not null default false,
    done         boolean not null default false,
    result       bigint,
    payer             text,
    reserved_tokens   bigint,
    reserved_microusd bigint
) with (fillfactor = 70);
comment on column work.position is 'The last event that offered this work.';
comment on column work.incarnation is 'The process that holds it; null when free.';
comment on column work.closed is 'Nobody needs it any more: no new claim, a holder may still record.';
comment on column work.breakdowns is 'Claims whose message could not be handled.';
comment on column work.dead is 'Given up after too many breakdowns; reopen_work offers it again.';
comment on column work.reoffer is 'Reopened: the sweeper shall offer it.';
comment on column work.payer is 'Of a judge call that is held: the run that pays for it.';
comment on column work.reserved_tokens is
    'What it may cost at most; null when its run had no budget as it was claimed.';
-- `done` changes once, so claims and renewals stay heap-only updates.
create index work_open on work (partition, position) where not done;
create index work_dead on work (run_id) where dead;
create index work_payer on work (payer) where reserved_tokens is not null;

create table process (
    incarnation   bigint primary key,
    service       text not null,
    host          text not null,
    pid           integer not null,
    registered_at timestamptz not null default clock_timestamp()
);

create table cursor (
    name      text not null,
    partition integer not null,
    position  bigint not null default 0,
    state     json not null default '{}',
    primary key (name, partition)
);

create table run_view (
    run_id     text primary key,
    partition  integer not null,
    position   bigint not null,
    state      text not null,
    created_at timestamptz not null,
    labels     jsonb not null,
    doc        json not null
);
create index run_view_order on run_view (created_at desc, run_id desc);

create table step_view (
    run_id text not null,
    step   integer not null,
    doc    json not null,
    source text generated always as (doc ->> 'source') stored,
    primary key (run_id, step)
);
create index step_view_whole on step_view (run_id) where source is not null;
comment on column step_view.source is 'The run whose trials these are: the step is recovered whole.';

create table trial_view (
    run_id   text not null,
    trial_id text collate "C" not null,
    step     integer not null,
    state    text not null,
    reward   double precision,
    doc      json not null,
    primary key (run_id, trial_id)
);
comment on column trial_view.reward is 'Of a judged trial: what comparing thousands of them reads.';

-- The trials of a run, those of steps that it recovered whole among them. The ids of a step are a
-- range of the key: a dot comes next to a dash.
create view trial_seen as
select run_id, trial_id, step, state, reward, doc from trial_view
union all
select s.run_id, t.trial_id, t.step, t.state, t.reward, t.doc
from step_view s join trial_view t on t.run_id = s.source
    and t.trial_id >= ('s' || s.step || '-') collate "C"
    and t.trial_id < ('s' || s.step || '.') collate "C"
where s.source is not null;

create function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% is append-only: % refused', tg_table_name, tg_op;
end $$;
create trigger event_append_only before update or delete on event
    for each row execute function refuse_change();
create trigger event_no_truncate before truncate on event
    for each statement execute function refuse_change();

insert into head (partition) values (0);
