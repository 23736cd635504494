"""Every SQL statement of the spine, named and described in one place.

Writes are calls of the functions in migrations/versions/v0001; the rest are reads.
"""

from __future__ import annotations

# One transaction for all members of a batch; the parameter order is that of the function.
COMMIT_BATCH = """
select * from commit_batch(
    $1::bigint,
    $2::"char"[], $3::text[], $4::bigint[], $5::integer[], $6::integer[], $7::boolean[],
    $8::text[], $9::text[],
    $10::integer[], $11::integer[], $12::uuid[], $13::text[], $14::text[], $15::smallint[],
    $16::text[], $17::text[], $18::bytea[], $19::text[],
    $20::text[], $21::text[], $22::boolean[], $23::integer[], $24::bigint[],
    $25::integer[], $26::text[],
    $27::integer[], $28::bytea[], $29::bytea[],
    $30::integer[], $31::bigint[], $32::bigint[])
"""

_EVENT = """
select partition, position, event_id, run_id, type, schema_version, data::text, recorded_at
from event
"""
READ = _EVENT + "where partition = $1 and position > $2 order by position limit $3"
READ_RUN = _EVENT + "where run_id = $1 and position > $2 order by position limit $3"
# What a replay needs of a run's events, but for types it has no use for.
READ_TO_FOLD = """
select position, partition, type, schema_version, data::text,
    extract(epoch from recorded_at)::float8 * 1000
from event where run_id = $1 and position > $2 and type <> all ($3::text[])
order by position limit $4
"""
AT_EVENT_ID = _EVENT + "where event_id = $1"
# The events with some ids, up to a position: what a fork sees of an ancestor.
AT_EVENT_IDS = """
select e.partition, e.position, e.event_id, e.run_id, e.type, e.schema_version, e.data::text,
    e.recorded_at
from unnest($1::uuid[]) as u (id)
cross join lateral (select * from event where event_id = u.id offset 0) e
where e.position <= $2 order by e.position
"""
# A run's events of a type between two others ($3 and $4, ids of which there may be no event), up to
# a position.
BETWEEN = """
select partition, position, event_id, run_id, type, schema_version, data::text, recorded_at
from event
where run_id = $1 and type = $2 and position <= $5
    and position > coalesce((select e.position from event e where e.event_id = $3), 0)
    and position < coalesce((select e.position from event e where e.event_id = $4), $5 + 1)
order by position
"""
AT_POSITION = _EVENT + "where partition = $1 and position = $2"
END = "select position from head where partition = $1"
# Whether a process ($2, an incarnation) holds a piece of work at a fence.
HOLDS = "select 1 from work where key = $1 and incarnation = $2 and fence = $3"
# Which of some pieces of work are done.
DONE = """
select w.key from unnest($1::text[]) as u (key)
cross join lateral (select key, done from work where work.key = u.key offset 0) w
where w.done
"""
VERIFY_CHAIN = "select verify_chain($1, $2, $3)"

# What code the services run, by name.
REGISTER_CODE = "select register_code($1, $2, $3)"
CODE = "select name, version from code"

SCHEMA = "select version_num from alembic_version"
RUN = "select run_id, partition, root, state, position from run where run_id = $1"

# Runs that something may still follow in: running, paused, or ended with work left to close.
ACTIVE_RUNS = """
select run_id from run where partition = $1 and state <> 'ended'
union
select run_id from work where partition = $1 and not done and kind <> 'call'
order by run_id
"""
# A run's budget. Calls whose holder is gone may have been billed: they count as spent.
BUDGET = """
select b.calls, b.tokens, b.microusd,
    b.spent_calls + lost.calls, b.spent_tokens + lost.tokens, b.spent_microusd + lost.microusd,
    b.reserved_calls - lost.calls, b.reserved_tokens - lost.tokens,
    b.reserved_microusd - lost.microusd, r.state, r.pauses
from budget b join run r on r.run_id = b.run_id
cross join lateral (
    select count(*) as calls, coalesce(sum(w.reserved_tokens), 0)::bigint as tokens,
        coalesce(sum(w.reserved_microusd), 0)::bigint as microusd
    from work w where w.payer = b.run_id and w.reserved_tokens is not null
        and w.lease_until < clock_timestamp()
) lost
where b.run_id = $1
"""
CLOCK_MS = "select extract(epoch from clock_timestamp())::float8 * 1000"

OWN_PARTITION = "select own_partition($1, $2, $3, $4)"
KEEP_PARTITION = "select keep_partition($1, $2, $3, $4)"
LEAVE_PARTITION = "select leave_partition($1, $2, $3)"
OWNER = "select owner, owner_fence, lease_until < clock_timestamp() from head where partition = $1"
CURSOR = "select position, state::text from cursor where name = $1 and partition = $2"
MOVE_CURSOR = "select move_cursor($1, $2, $3, $4, $5, $6)"

# The sweeper's view of a partition: what is not done, oldest offer first.
OPEN_WORK = """
select w.key, w.kind, w.run_id, w.position, w.incarnation is not null as held,
    w.lease_until < clock_timestamp() as expired, r.state as run_state,
    case when isfinite(w.not_before) then w.not_before end as not_before, w.closed
from work w join run r on r.run_id = w.run_id
where w.partition = $1 and not w.done and w.kind <> 'call' and w.position > $2
    and w.not_before < 'infinity'
order by w.position, w.key limit $3
"""
LAPSED_WORK = """
select w.key from work w where w.partition = $1 and not w.done and w.kind <> 'call'
    and (w.reoffer or w.incarnation is not null and w.lease_until < clock_timestamp())
"""
# Work that was given up because its message could not be handled.
DEAD_WORK = """
select w.key, w.kind, w.run_id, w.position, w.breakdowns
from work w where w.run_id = $1 and w.dead order by w.position, w.key
"""
REOPEN_WORK = "select reopen_work($1)"
BURY_CLOSED = "select bury_closed($1)"
COUNT_SWEEPS = "select key, sweeps from count_sweeps($1)"

REGISTER_PROCESS = "select register_process($1, $2, $3, $4)"
REJOIN_PROCESS = "select rejoin_process($1)"
LOCK_INCARNATION = "select pg_try_advisory_lock($1)"
# Incarnations of processes that vanished; never one of a process that lives.
GONE = "select gone_processes()"
PRESENT = """
select p.incarnation, p.service, p.host, p.pid, p.registered_at from process p
where exists (
    select 1 from pg_locks l
    where l.locktype = 'advisory' and l.objsubid = 1
        and (l.classid::bigint << 32) | l.objid::bigint = p.incarnation)
order by p.registered_at
"""
VOID_INCARNATIONS = "select void_incarnations($1)"

GET_BLOBS = "select digest, bytes from blob where digest = any($1::bytea[])"
PUT_BLOBS = "select put_blobs($1::bytea[], $2::bytea[])"
