-- The other writes a service may make; each says who may call it and what it guards.

-- A driver takes a partition that nobody holds, or whose owner it saw vanish (p_gone). Returns
-- the new fence, or null when somebody else owns it.
create function own_partition(
    p_partition integer, p_incarnation bigint, p_lease_ms integer, p_gone bigint
) returns bigint language sql volatile security definer as $$
    update head set owner = p_incarnation, owner_fence = owner_fence + 1,
        lease_until = clock_timestamp() + p_lease_ms * interval '1 ms'
    where partition = p_partition
        and (lease_until < clock_timestamp() or owner = p_gone or owner = p_incarnation)
    returning owner_fence
$$;

-- The owner stays the owner. False: it lost the partition and must stop.
create function keep_partition(
    p_partition integer, p_incarnation bigint, p_fence bigint, p_lease_ms integer
) returns boolean language plpgsql volatile security definer as $$
begin
    update head set lease_until = clock_timestamp() + p_lease_ms * interval '1 ms'
    where partition = p_partition and owner = p_incarnation and owner_fence = p_fence;
    return found;
end $$;

-- The owner leaves: a standby need not wait for the lease.
create function leave_partition(p_partition integer, p_incarnation bigint, p_fence bigint)
returns void language sql volatile security definer as $$
    update head set lease_until = '-infinity'
    where partition = p_partition and owner = p_incarnation and owner_fence = p_fence
$$;

-- A cursor moves only under the fence of the partition's owner. False: fenced, nothing moved.
create function move_cursor(
    p_name text, p_partition integer, p_position bigint, p_state text, p_incarnation bigint,
    p_fence bigint
) returns boolean language plpgsql volatile security definer as $$
begin
    perform 1 from head where partition = p_partition and owner = p_incarnation
        and owner_fence = p_fence for share;
    if not found then return false; end if;
    insert into cursor (name, partition, position, state)
    values (p_name, p_partition, p_position, p_state::json)
    on conflict (name, partition) do update
        set position = excluded.position, state = excluded.state;
    return true;
end $$;

-- A process makes itself known before it takes the advisory lock of its incarnation.
create function register_process(p_incarnation bigint, p_service text, p_host text, p_pid integer)
returns void language sql volatile security definer as $$
    insert into process (incarnation, service, host, pid)
    values (p_incarnation, p_service, p_host, p_pid)
$$;

-- A process whose connection broke comes back. False: it was given up meanwhile, and must take a
-- new incarnation.
create function rejoin_process(p_incarnation bigint)
returns boolean language plpgsql volatile security definer as $$
begin
    update process set registered_at = clock_timestamp() where incarnation = p_incarnation;
    return found;
end $$;

-- Incarnations whose lock nobody holds any more though it was taken since Postgres last started:
-- a restart, also the one after a crashed backend, takes every lock from the living, who come back
-- within seconds (spine/presence.py); who has not after ten is gone too. The lock's key is a
-- bigint: pg_locks shows it as two halves.
create function gone_processes()
returns setof bigint language sql volatile security definer as $$
    select p.incarnation
    from process p, (
        select greatest(pg_postmaster_start_time(), max(a.backend_start)) + interval '1 ms' as at
        from pg_stat_activity a where a.backend_type = 'checkpointer') started
    where (p.registered_at > started.at or clock_timestamp() > started.at + interval '10 s')
        and not exists (
            select 1 from pg_locks l
            where l.locktype = 'advisory' and l.objsubid = 1
                and (l.classid::bigint << 32) | l.objid::bigint = p.incarnation)
$$;

-- A process is gone for good: its leases end now and its row goes. Presence is read from
-- pg_locks (gone_processes), which also rules out a restart of Postgres.
create function void_incarnations(p_gone bigint[])
returns integer language plpgsql volatile security definer as $$
declare
    voided integer;
begin
    perform 1 from work where not done and incarnation = any (p_gone) order by key for update;
    update work set lease_until = '-infinity' where not done and incarnation = any (p_gone);
    get diagnostics voided = row_count;
    delete from process where incarnation = any (p_gone);
    return voided;
end $$;

-- Work that nobody needs any more (closed, or its run has ended) and nobody holds is over. Calls
-- belong to their tree and stay.
create function bury_closed(p_partition integer)
returns void language plpgsql volatile security definer as $$
declare
    over_now text[];
begin
    -- Rows are locked in key order here too (see commit_batch).
    over_now := array(
        select w.key from work w join run r on r.run_id = w.run_id
        where w.partition = p_partition and not w.done and w.kind <> 'call'
            and (w.closed or r.state = 'ended')
            and (w.incarnation is null or w.lease_until < clock_timestamp())
        order by w.key for update of w);
    update work set done = true where key = any (over_now);
end $$;

-- Dead work, given up after too many breakdowns, is to be done after all; the sweeper offers it.
-- Returns the keys that were reopened: nobody reopens what nobody needs any more.
create function reopen_work(p_keys text[])
returns setof text language plpgsql volatile security definer as $$
begin
    perform 1 from work w where w.key = any (p_keys) order by w.key for update;
    return query update work w set dead = false, done = false, reoffer = true
        where w.key = any (p_keys) and w.dead and not w.closed returning w.key;
end $$;

-- Work was offered on the bus again; returns how often, which makes the message id new.
create function count_sweeps(p_keys text[])
returns table (key text, sweeps integer) language plpgsql volatile security definer as $$
begin
    perform 1 from work w where w.key = any (p_keys) order by w.key for update;
    return query update work w set sweeps = w.sweeps + 1, reoffer = false
        where w.key = any (p_keys) returning w.key, w.sweeps;
end $$;

-- Bytes too large for an event go to the blob store before the event that names them.
create function put_blobs(p_digest bytea[], p_bytes bytea[])
returns void language sql volatile security definer as $$
    insert into blob (digest, bytes)
    select u.digest, u.bytes from unnest(p_digest, p_bytes) as u (digest, bytes)
    order by u.digest on conflict (digest) do nothing
$$;

-- Read models move with their cursor, under the owner's fence. False: fenced, nothing moved.
create function project(
    p_partition integer, p_position bigint, p_incarnation bigint, p_fence bigint,
    r_run text[], r_position bigint[], r_state text[], r_created timestamptz[], r_labels text[],
    r_doc text[],
    s_run text[], s_step integer[], s_doc text[],
    t_run text[], t_trial text[], t_step integer[], t_state text[],
    t_reward double precision[], t_doc text[]
) returns boolean language plpgsql volatile security definer as $$
begin
    if not move_cursor('views', p_partition, p_position, '{}', p_incarnation, p_fence) then
        return false;
    end if;
    insert into run_view (run_id, partition, position, state, created_at, labels, doc)
    select u.run, p_partition, u.position, u.state, u.created, u.labels::jsonb, u.doc::json
    from unnest(r_run, r_position, r_state, r_created, r_labels, r_doc)
        as u (run, position, state, created, labels, doc)
    on conflict (run_id) do update
        set position = excluded.position, state = excluded.state, doc = excluded.doc;
    insert into step_view (run_id, step, doc)
    select u.run, u.step, u.doc::json from unnest(s_run, s_step, s_doc) as u (run, step, doc)
    on conflict (run_id, step) do update set doc = excluded.doc;
    insert into trial_view (run_id, trial_id, step, state, reward, doc)
    select u.run, u.trial, u.step, u.state, u.reward, u.doc::json
    from unnest(t_run, t_trial, t_step, t_state, t_reward, t_doc)
        as u (run, trial, step, state, reward, doc)
    on conflict (run_id, trial_id) do update
        set state = excluded.state, reward = excluded.reward, doc = excluded.doc;
    return true;
end $$;

-- Read models are rebuilt from the log: empty them and set their cursor back.
create function forget_views(p_partition integer, p_incarnation bigint, p_fence bigint)
returns boolean language plpgsql volatile security definer as $$
begin
    if not move_cursor('views', p_partition, 0, '{}', p_incarnation, p_fence) then
        return false;
    end if;
    delete from trial_view t using run_view r
    where t.run_id = r.run_id and r.partition = p_partition;
    delete from step_view s using run_view r
    where s.run_id = r.run_id and r.partition = p_partition;
    delete from run_view where partition = p_partition;
    return true;
end $$;

-- Walk the chain of a partition: each event's own hash, its link, and that the head's event is
-- there, so a cut tail shows. Returns the first broken position, or null.
create function verify_chain(p_partition integer, p_after bigint, p_until bigint)
returns bigint language sql stable security definer as $$
    select min(broken.position) from (
        select e.position from event e
        left join event before
            on before.partition = e.partition and before.position = e.position - 1
        where e.partition = p_partition and e.position > p_after and e.position <= p_until
            and (e.prev_hash <> coalesce(before.hash, '\x')
                or e.body_hash <> sha256(uuid_send(e.event_id) || convert_to(
                    concat_ws(E'\n', e.run_id, e.type, e.schema_version, e.data::text), 'UTF8'))
                or e.hash <> sha256(e.prev_hash || int4send(e.partition) || int8send(e.position)
                    || int8send((extract(epoch from e.recorded_at) * 1000000)::bigint)
                    || e.body_hash))
        union all
        select h.position from head h
        where h.partition = p_partition and h.position > p_after and h.position <= p_until
            and not exists (
                select 1 from event e where e.partition = h.partition
                    and e.position = h.position and e.hash = h.hash)
    ) as broken (position)
$$;

-- These functions write with their owner's rights: a temporary table of the caller's must never
-- stand in for one of ours.
do $$
declare
    f regprocedure;
begin
    for f in select oid from pg_proc where pronamespace = 'public'::regnamespace and prosecdef
    loop
        execute format('alter function %s set search_path = pg_catalog, public, pg_temp', f);
    end loop;
end $$;
