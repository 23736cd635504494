-- What the services run: the version of each piece of code whose outcome others count on, by name.
-- It stands beside the log: a run's own log says what it expected and what was executed
-- (docs/decisions/0024-a-key-tells-what-was-executed.md).
create table code (
    name          text collate "C" primary key,
    version       text not null check (version <> ''),
    service       text not null,
    registered_at timestamptz not null default clock_timestamp()
);
comment on table code is 'The latest version that a service told of; it stays when the process goes.';

-- A service tells what it runs. Of two that tell of one name, the later counts.
create function register_code(p_service text, p_names text[], p_versions text[])
returns void language sql volatile security definer
set search_path = pg_catalog, public, pg_temp as $$
    insert into code (name, version, service)
    -- Rows are locked in the order of names: services that start at once do not wait in a ring.
    select u.name, u.version, p_service from unnest(p_names, p_versions) as u (name, version)
    order by u.name collate "C"
    on conflict (name) do update set version = excluded.version, service = excluded.service,
        registered_at = clock_timestamp()
$$;
