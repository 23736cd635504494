-- commit_batch: every write of a process, many members in one transaction.
--
-- A member applies wholly or not at all and gets its own verdict. Kinds:
--   a  append   events; with a fence only while that fence owns the partition
--   c  claim    take a piece of work; with an expected fence, its events come with the claim
--   f  finish   end held work under its fence, with the facts it established
--   x  fail     end an attempt under its fence, with the failure as a fact; nobody is offered the
--               work until the driver has answered that (calls are free at once)
--   b  release  set held work free under its fence: its message could not be handled (counted)
--   d  bury     the same for the last time: nobody is offered it until somebody reopens it
--   g  give     set held work free under its fence: it cannot go on now, and nobody is to blame
--   r  renew    extend the lease of held work
-- The caller never puts one work key or one event id into a batch twice (spine/writer.py).
-- READ COMMITTED: rows of work are locked in key order, then heads in partition order, then budgets
-- in run order, each as its own statement, so what is read afterwards is what was committed before.
-- Budgets come last because what is recorded moves them: under the head nothing else is recorded.
--
-- A judge call is paid for by the run that claims it (work.payer). Its claim brings its worst cost
-- (k_*), which the budget of that run must have room for; its end brings what it did cost, or
-- nothing when no request was sent. A call that is taken over may have been billed: what it had
-- reserved is spent. Runs without a budget have no row, and nothing is locked for them.
-- Work that is set free moves to the next fence, so what was seen of the old hold no longer holds.
create function commit_batch(
    p_incarnation bigint,
    m_kind "char"[], m_key text[], m_fence bigint[], m_partition integer[], m_lease_ms integer[],
    m_injected boolean[], m_new_kind text[], m_new_run text[],
    e_member integer[], e_partition integer[], e_id uuid[], e_run text[], e_type text[],
    e_version smallint[], e_data text[], e_trace text[], e_hash bytea[], e_root text[],
    e_work_key text[], e_work_kind text[], e_work_held boolean[], e_work_lease_ms integer[],
    e_not_before_ms bigint[],
    c_member integer[], c_key text[],
    b_member integer[], b_digest bytea[], b_bytes bytea[],
    k_member integer[], k_tokens bigint[], k_microusd bigint[]
) returns table (
    member integer, verdict text, fence bigint, failures integer, injected integer, lost integer,
    result bigint, breakdowns integer
)
language plpgsql volatile security definer
-- Plans are kept, and may be made while the tables are empty: they must look rows up by key, one
-- by one, or every batch costs more than the last until somebody runs ANALYZE. Hence also the
-- lateral look-ups: `offset 0` keeps the planner from turning a join round.
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    n        constant integer := coalesce(cardinality(m_kind), 0);
    n_events constant integer := coalesce(cardinality(e_id), 0);
    heads    constant integer[] := array_remove(e_partition || m_partition, null);
    v        text[] := array_fill(null::text, array[n]);
    v_fence  bigint[] := array_fill(0::bigint, array[n]);
    v_fail   integer[] := array_fill(0, array[n]);
    v_inj    integer[] := array_fill(0, array[n]);
    v_lost   integer[] := array_fill(0, array[n]);
    v_last   bigint[] := array_fill(null::bigint, array[n]);
    v_broken integer[] := array_fill(0, array[n]);
    e_pos    bigint[] := array_fill(null::bigint, array[n_events]);
    e_new    boolean[] := array_fill(false, array[n_events]);
    e_prev   bytea[] := array_fill(null::bytea, array[n_events]);
    e_chain  bytea[] := array_fill(null::bytea, array[n_events]);
    calls    integer[] := '{}';
    payers   text[] := '{}';
    v_payer  text[] := '{}';
    v_tokens bigint[] := '{}';
    v_money  bigint[] := '{}';
    at       timestamptz;
    r        record;
    i        integer;
    k        integer;
    moved    bigint;
    locked   bigint;
    ours     text[];
    link     bytea;
begin
    if 'c' = any (m_kind) then
        insert into work as w (key, kind, run_id, partition, position)
        select u.key, u.new_kind, u.new_run, run.partition, 0
        from unnest(m_key, m_new_kind, m_new_run) as u (key, new_kind, new_run)
        join run on run.run_id = u.new_run
        where u.new_kind is not null order by u.key
        on conflict (key) do nothing;
    end if;

    -- What is locked here, and nothing else, is changed below: to wait for a row while holding a
    -- head would close a circle with whoever holds that row and waits for the head.
    ours := array(
        select w.key from work w where w.key = any (m_key || c_key || e_work_key)
        order by w.key for update);
    at := clock_timestamp();

    for r in
        select u.i, u.kind, u.expected, w.*, run.state as run_state
        from unnest(m_kind, m_key, m_fence, m_new_run) with ordinality
            as u (kind, key, expected, new_run, i)
        cross join lateral (select * from work where work.key = u.key offset 0) w
        -- A call belongs to the tree: the run that asks now counts, not the one that asked first.
        cross join lateral (
            select run.state from run where run.run_id = coalesce(u.new_run, w.run_id) offset 0
        ) run
    loop
        i := r.i;
        v_fence[i] := r.fence; v_fail[i] := r.failures; v_inj[i] := r.injected;
        v_lost[i] := r.lost; v_last[i] := r.result; v_broken[i] := r.breakdowns;
        if r.kind <> 'c' then
            v[i] := case
                -- A finish sent again after a broken connection finds its own work done.
                when r.fence <> r.expected then 'lost'
                when r.done then case when r.kind = 'f' then 'ok' else 'lost' end
                when r.incarnation is null then 'lost'
                when r.kind = 'r' and r.closed then 'closed'
                else 'ok' end;
        elsif r.done or r.closed then v[i] := 'done';
        elsif r.run_state <> 'running' then v[i] := 'refused';
        elsif r.incarnation is not null and r.lease_until > at then v[i] := 'held';
        elsif (r.incarnation is not null or r.expected is not null)
            and r.fence is distinct from r.expected then v[i] := 'stale';
        elsif r.not_before = 'infinity' then v[i] := 'undecided';
        elsif r.not_before > at then v[i] := 'early';
        else
            v[i] := 'ok'; v_fence[i] := r.fence + 1;
            if r.incarnation is not null then v_lost[i] := r.lost + 1; end if;
        end if;
        if r.payer is not null or m_new_run[i] is not null then
            calls := calls || i; payers := payers || array[r.payer, m_new_run[i]];
        end if;
    end loop;
    for i in 1 .. n loop
        if v[i] is null then
            v[i] := case when m_kind[i] = 'a' then 'ok' when m_kind[i] = 'c' then 'unknown'
                         else 'lost' end;
        end if;
    end loop;

    if cardinality(heads) > 0 then
        perform 1 from head h where h.partition = any (heads)
        order by h.partition for update;
        get diagnostics locked = row_count;
        if locked <> (select count(distinct u.partition) from unnest(heads) as u (partition)) then
            raise foreign_key_violation using message = 'an event names an unknown partition';
        end if;
        for i in 1 .. n loop
            if m_kind[i] = 'a' and m_fence[i] is not null and not exists (
                select 1 from head h
                where h.partition = m_partition[i] and h.owner_fence = m_fence[i]
            ) then v[i] := 'fenced'; end if;
        end loop;
    end if;
    if n_events > 0 then
        for r in
            select u.i, u.member, e.position, e.body_hash = u.body_hash as same
            from unnest(e_id, e_member, e_hash) with ordinality as u (id, member, body_hash, i)
            cross join lateral (
                select event.position, event.body_hash from event
                where event.event_id = u.id offset 0
            ) e
        loop
            e_pos[r.i] := r.position;
            if not r.same and v[r.member] = 'ok' then v[r.member] := 'different'; end if;
        end loop;
    end if;

    if cardinality(calls) > 0 or 'RunResumed' = any (e_type) then
        -- With those whose limits are set below: to lock them later would close a circle with who
        -- ends calls without a fact, and so holds budgets and no head.
        perform 1 from budget b where b.run_id = any (payers || array(
            select u.run from unnest(e_run, e_type) as u (run, type) where u.type = 'RunResumed'))
        order by b.run_id for update;
        foreach i in array calls loop
            continue when v[i] not in ('ok', 'closed');
            k := array_position(k_member, i);
            select w.payer, w.reserved_tokens as tokens, w.reserved_microusd as money into r
            from work w where w.key = m_key[i];
            if m_kind[i] = 'r' then
                v_payer[i] := r.payer; v_tokens[i] := r.tokens; v_money[i] := r.money;
                continue;
            end if;
            if m_kind[i] = 'c' then
                update budget b set reserved_calls = b.reserved_calls + 1,
                    reserved_tokens = b.reserved_tokens + k_tokens[k],
                    reserved_microusd = b.reserved_microusd + k_microusd[k]
                where b.run_id = m_new_run[i]
                    and (b.calls is null or b.spent_calls + b.reserved_calls + 1 <= b.calls)
                    and (b.tokens is null
                        or b.spent_tokens + b.reserved_tokens + k_tokens[k] <= b.tokens)
                    and (b.microusd is null
                        or b.spent_microusd + b.reserved_microusd + k_microusd[k] <= b.microusd);
                if found then
                    v_tokens[i] := k_tokens[k]; v_money[i] := k_microusd[k];
                elsif exists (select from budget b where b.run_id = m_new_run[i]) then
                    v[i] := 'unfunded';
                    continue;
                end if;
                v_payer[i] := m_new_run[i];
            end if;
            -- What was held is over: lost, and then spent as it was reserved, or ended.
            update budget b set
                reserved_calls = b.reserved_calls - (r.tokens is not null)::integer,
                reserved_tokens = b.reserved_tokens - coalesce(r.tokens, 0),
                reserved_microusd = b.reserved_microusd - coalesce(r.money, 0),
                spent_calls = b.spent_calls + (m_kind[i] = 'c' or k is not null)::integer,
                spent_tokens = b.spent_tokens + coalesce(
                    case when m_kind[i] = 'c' then r.tokens end, k_tokens[k], 0),
                spent_microusd = b.spent_microusd + coalesce(
                    case when m_kind[i] = 'c' then r.money end, k_microusd[k], 0)
            where b.run_id = r.payer;
        end loop;
    end if;

    if n_events > 0 then
        at := clock_timestamp();
        for r in select h.partition, h.position, h.hash from head h
            where h.partition = any (e_partition) order by h.partition
        loop
            moved := r.position; link := r.hash;
            for i in 1 .. n_events loop
                if e_partition[i] = r.partition and e_pos[i] is null and v[e_member[i]] = 'ok' then
                    moved := moved + 1;
                    e_pos[i] := moved; e_new[i] := true; e_prev[i] := link;
                    link := sha256(link || int4send(r.partition) || int8send(moved)
                        || int8send((extract(epoch from at) * 1000000)::bigint) || e_hash[i]);
                    e_chain[i] := link;
                end if;
                if e_pos[i] is not null and v[e_member[i]] = 'ok' then
                    v_last[e_member[i]] := e_pos[i];
                end if;
            end loop;
            if moved > r.position then
                update head h set position = moved, hash = link where h.partition = r.partition;
            end if;
        end loop;

        insert into event (partition, position, event_id, run_id, type, schema_version, data,
            trace_parent, recorded_at, body_hash, prev_hash, hash)
        select u.partition, u.position, u.id, u.run, u.type, u.version, u.data::json,
            u.trace, at, u.body_hash, u.prev, u.chain
        from unnest(e_new, e_partition, e_pos, e_id, e_run, e_type, e_version, e_data, e_trace,
            e_hash, e_prev, e_chain)
            as u (new, partition, position, id, run, type, version, data, trace, body_hash, prev,
                chain)
        where u.new;

        if e_type && array['RunRequested', 'RunPaused', 'RunResumed', 'RunCancelled',
                'RunFailed', 'RunCompleted'] then
            insert into run (run_id, partition, position, root, state)
            select u.run, u.partition, u.position, u.root, 'running'
            from unnest(e_new, e_run, e_partition, e_pos, e_type, e_root)
                as u (new, run, partition, position, type, root)
            where u.new and u.type = 'RunRequested' on conflict do nothing;
            for i in 1 .. n_events loop
                if e_new[i] and e_type[i] <> 'RunRequested' then
                    update run set state = case e_type[i] when 'RunPaused' then 'paused'
                            when 'RunResumed' then 'running' else 'ended' end,
                        pauses = case e_type[i] when 'RunPaused' then 1
                            + (replace(e_data[i], '\u0000', '\ufffd')::json ->> 'n')::integer
                            else run.pauses end
                    where run.run_id = e_run[i] and run.state <> 'ended'
                        and e_type[i] = any (array['RunPaused', 'RunResumed', 'RunCancelled',
                            'RunFailed', 'RunCompleted']);
                end if;
                if e_new[i] and e_type[i] in ('RunRequested', 'RunResumed') then
                    perform set_budget(e_run[i], e_type[i], e_data[i]);
                end if;
            end loop;
        end if;

        insert into work as w (key, kind, run_id, partition, position, fence, incarnation,
            lease_until, not_before)
        select u.key, u.kind, u.run, u.partition, u.position,
            case when u.held then 1 else 0 end, case when u.held then p_incarnation end,
            case when u.held then at + u.lease_ms * interval '1 ms' else '-infinity' end,
            coalesce(to_timestamp(u.not_before / 1000.0), '-infinity')
        from unnest(e_new, e_work_key, e_work_kind, e_run, e_partition, e_pos, e_work_held,
            e_work_lease_ms, e_not_before_ms)
            as u (new, key, kind, run, partition, position, held, lease_ms, not_before)
        where u.new and u.key is not null
        on conflict (key) do update
            set position = excluded.position, not_before = excluded.not_before;
    end if;

    if cardinality(b_digest) > 0 then
        insert into blob (digest, bytes)
        select distinct on (u.digest) u.digest, u.bytes
        from unnest(b_member, b_digest, b_bytes) as u (member, digest, bytes)
        where v[u.member] = 'ok' order by u.digest
        on conflict (digest) do nothing;
    end if;

    update work w set
        fence = case when u.kind = 'c' then v_fence[u.i]
            when u.kind in ('x', 'b', 'd', 'g') then w.fence + 1 else w.fence end,
        incarnation = case when u.kind in ('c', 'r') then p_incarnation end,
        lease_until = case when u.kind in ('c', 'r') then at + u.lease_ms * interval '1 ms'
            else '-infinity' end,
        lost = v_lost[u.i],
        not_before = case when u.kind = 'x' and w.kind <> 'call' then 'infinity'
            else w.not_before end,
        failures = w.failures + case when u.kind = 'x' then 1 else 0 end,
        injected = w.injected + case when u.kind = 'x' and u.injected then 1 else 0 end,
        breakdowns = w.breakdowns + case when u.kind in ('b', 'd') then 1 else 0 end,
        dead = u.kind = 'd' and not w.closed,
        done = u.kind in ('f', 'd') or (u.kind in ('x', 'b', 'g') and w.closed),
        result = case when u.kind = 'f' then v_last[u.i] else w.result end,
        payer = v_payer[u.i], reserved_tokens = v_tokens[u.i], reserved_microusd = v_money[u.i]
    from unnest(m_kind, m_key, m_lease_ms, m_injected) with ordinality
        as u (kind, key, lease_ms, injected, i)
    cross join lateral (select work.ctid from work where work.key = u.key offset 0) at_key
    where w.ctid = at_key.ctid and (v[u.i] = 'ok' or v[u.i] = 'closed');

    if cardinality(c_key) > 0 then
        update work w set closed = true, done = w.incarnation is null, dead = false
        from unnest(c_member, c_key) as u (member, key)
        cross join lateral (select work.ctid from work where work.key = u.key offset 0) at_key
        where w.ctid = at_key.ctid and v[u.member] = 'ok' and (not w.done or w.dead)
            -- Work that came up meanwhile is closed when its event is folded.
            and u.key = any (ours);
    end if;

    for i in 1 .. n loop
        member := i; verdict := v[i]; fence := v_fence[i]; failures := v_fail[i];
        injected := v_inj[i]; lost := v_lost[i];
        result := v_last[i]; breakdowns := v_broken[i];
        return next;
    end loop;
end $$;

-- The limits that a run was asked for with or is resumed with, called as that is recorded. A run
-- that had none before has spent what its calls on the log cost; those that are out are added as
-- they end. JSON text may hold U+0000, which a part of it cannot be taken out beside.
create function set_budget(p_run text, p_type text, p_data text)
returns void language plpgsql volatile as $$
declare
    data   constant json := replace(p_data, '\u0000', '\ufffd')::json;
    limits constant json := case p_type
        when 'RunRequested' then data #> '{spec,budget}' else data -> 'budget' end;
    m_calls  constant bigint := (limits ->> 'judge_calls')::bigint;
    m_tokens constant bigint := (limits ->> 'tokens')::bigint;
    m_money  constant bigint := floor((limits ->> 'usd')::numeric * 1000000)::bigint;
begin
    if limits is null then return; end if;
    update budget set calls = m_calls, tokens = m_tokens, microusd = m_money
    where run_id = p_run;
    if found or coalesce(m_calls, m_tokens, m_money) is null then return; end if;
    insert into budget (run_id, calls, tokens, microusd, spent_calls, spent_tokens, spent_microusd)
    select p_run, m_calls, m_tokens, m_money, count(*),
        coalesce(sum(d.prompt_tokens + d.completion_tokens), 0), coalesce(sum(d.cost_microusd), 0)
    from event e, json_to_record(replace(e.data::text, '\u0000', '\ufffd')::json) as d (
        prompt_tokens bigint, completion_tokens bigint, cost_microusd bigint, provenance json)
    where e.run_id = p_run and e.type = 'JudgeCallRecorded' and d.provenance is null;
end $$;
