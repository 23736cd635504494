-- Rubrics by name, in versions that never change. They stand beside the log, not on it: a run's own
-- log holds its rubric whole (docs/decisions/0022-rubrics-stand-beside-the-log.md).
create table rubric (
    name       text collate "C" not null,
    version    integer not null,
    digest     text not null,
    data       json not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (name, version),
    unique (name, digest)
);
comment on column rubric.digest is 'Of data, in canonical JSON: a content is one version of a name.';

create trigger rubric_append_only before update or delete on rubric
    for each row execute function refuse_change();
create trigger rubric_no_truncate before truncate on rubric
    for each statement execute function refuse_change();

-- A rubric is kept as the next version of its name, unless its content is one already. Returns the
-- version that it is, whether it was added, and the name's latest.
create function put_rubric(p_name text, p_digest text, p_data text)
returns table (version integer, created_at timestamptz, added boolean, latest integer)
language plpgsql volatile security definer set search_path = pg_catalog, public, pg_temp as $$
declare
    is_new boolean;
begin
    -- One at a time; readers go on. Each statement below sees what the one before it in the queue
    -- has committed (READ COMMITTED), so no two count on from the same version.
    lock table rubric in share row exclusive mode;
    insert into rubric (name, version, digest, data)
    select p_name, coalesce(max(r.version), 0) + 1, p_digest, p_data::json
    from rubric r where r.name = p_name
    having coalesce(bool_and(r.digest <> p_digest), true);
    is_new := found;
    return query select r.version, r.created_at, is_new,
        (select max(l.version) from rubric l where l.name = p_name)
    from rubric r where r.name = p_name and r.digest = p_digest;
end $$;
