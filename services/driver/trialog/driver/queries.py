"""Every SQL statement of the driver's read models, named and described in one place.

They are written by the functions project and forget_views of the spine's migrations. Dead work is
read from the work itself.

Taking a part out of ``json`` fails when any text in it holds U+0000: Postgres has no text for it.
So documents are read whole, or with that character replaced.
"""

from __future__ import annotations

# Upserts of a batch and the move of the cursor, in one transaction under the owner's fence.
PROJECT = """
select project($1, $2, $3, $4,
    $5::text[], $6::bigint[], $7::text[], $8::timestamptz[], $9::text[], $10::text[],
    $11::text[], $12::integer[], $13::text[],
    $14::text[], $15::text[], $16::integer[], $17::text[], $18::float8[], $19::text[])
"""
FORGET_VIEWS = "select forget_views($1, $2, $3)"

# How far the read models are, and whether a driver leads, that is, moves them.
PROJECTION = """
select coalesce(c.position, 0), h.lease_until > clock_timestamp() as led
from head h left join cursor c on c.name = 'views' and c.partition = h.partition
where h.partition = $1
"""

RUN_DOC = "select doc::text from run_view where run_id = $1"
RUN_DOCS = "select run_id, doc::text from run_view where run_id = any($1::text[])"
# What a run was asked to do, in the event that asked for it ($1).
RUN_REQUEST = "select data::text from event where event_id = $1"
STEP_DOCS = """
select v.run_id, v.step, v.doc::text
from unnest($1::text[], $2::integer[]) as u (run_id, step)
join step_view v on v.run_id = u.run_id and v.step = u.step
"""
TRIAL_DOC = "select doc::text from trial_seen where run_id = $1 and trial_id = $2"
TRIAL_DOCS = """
select v.run_id, v.trial_id, v.doc::text
from unnest($1::text[], $2::text[]) as u (run_id, trial_id)
join trial_view v on v.run_id = u.run_id and v.trial_id = u.trial_id
"""
# The same with the trials of steps that a run recovered whole.
TRIAL_DOCS_SEEN = """
select v.run_id, v.trial_id, v.doc::text
from unnest($1::text[], $2::text[]) as u (run_id, trial_id)
join trial_seen v on v.run_id = u.run_id and v.trial_id = u.trial_id
"""

# A page of runs, newest first, after a (created_at, run_id) that was seen. Labels: all of them.
RUN_PAGE = """
select v.run_id, v.state, v.created_at, v.labels::text as labels,
    d.parent, d.rubric, d.steps_applied, d.n_steps, d.mean_reward
from (
    select run_id, state, created_at, labels, doc from run_view
    where ($1::text is null or state = $1) and labels @> $2::jsonb
        and ($3::timestamptz is null or (created_at, run_id) < ($3, $4))
    order by created_at desc, run_id desc limit $5
) v, json_to_record(replace(v.doc::text, '\\u0000', '\\ufffd')::json) as d (
    parent text, rubric text, steps_applied integer, n_steps integer, mean_reward float8)
order by v.created_at desc, v.run_id desc
"""

# A page of the runs of a tree ($1: its root) in the order of their requests, after a position.
TREE_PAGE = """
select r.run_id, r.position, v.doc::text
from run r left join run_view v on v.run_id = r.run_id
where r.root = $1 and r.position > $2 order by r.position limit $3
"""

# A page of a run's steps in order. $4: steps to leave out, because the log says more about them
# than their documents do yet.
STEP_PAGE = """
select step, doc::text from step_view
where run_id = $1 and ($2::integer is null or step = $2) and step > $3
    and step <> all ($4::integer[])
order by step limit $5
"""

# A page of a run's trials in order of the text of their ids. $5: trials to leave out, likewise.
TRIAL_PAGE = """
select doc::text from trial_seen
where run_id = $1 and ($2::integer is null or step = $2) and ($3::text is null or state = $3)
    and trial_id > $4 and trial_id <> all ($5::text[])
order by trial_id limit $6
"""

# The trials of two runs ($1, $2) side by side in order of the text of their ids, between two of
# them ($3, $4). $5: trials to leave out, likewise. An id among the first of the page is among the
# first of each run that has it.
TRIAL_PAIRS = """
select trial_id, a.doc::text, b.doc::text
from (
    select trial_id, doc from trial_seen
    where run_id = $1 and trial_id > $3 and trial_id < $4 and trial_id <> all ($5::text[])
    order by trial_id limit $6
) a full join (
    select trial_id, doc from trial_seen
    where run_id = $2 and trial_id > $3 and trial_id < $4 and trial_id <> all ($5::text[])
    order by trial_id limit $6
) b using (trial_id)
order by trial_id limit $6
"""
# The same without end, summed up by step: trials of each run, those with a reward, and the rewards
# of those that have one in both, in order of trial id.
REWARDS_BY_STEP = """
select coalesce(a.step, b.step) as step, count(a.step)::integer, count(b.step)::integer,
    count(a.reward)::integer, count(b.reward)::integer,
    array_agg(a.reward order by trial_id) filter (where a.reward + b.reward is not null),
    array_agg(b.reward order by trial_id) filter (where a.reward + b.reward is not null)
from (
    select trial_id, step, reward from trial_seen
    where run_id = $1 and trial_id > $3 and trial_id < $4 and trial_id <> all ($5::text[])
) a full join (
    select trial_id, step, reward from trial_seen
    where run_id = $2 and trial_id > $3 and trial_id < $4 and trial_id <> all ($5::text[])
) b using (trial_id)
group by 1 order by 1
"""

# The trials of some steps ($1), each of the run that has them ($2).
TRIALS_OF = """
select t.trial_id, t.doc::text
from unnest($1::integer[], $2::text[]) as u (step, run_id)
join trial_view t on t.run_id = u.run_id
    and t.trial_id >= ('s' || u.step || '-') collate "C"
    and t.trial_id < ('s' || u.step || '.') collate "C"
"""

# Work that was given up, after a key that was seen; of one run or of all ($1 is null).
DEAD_LETTERS = """
select key, kind, run_id, breakdowns from work
where dead and ($1::text is null or run_id = $1) and key > $2 order by key limit $3
"""
WORK = """
select w.run_id, w.dead, w.done, w.closed, w.reoffer, r.state as run_state
from work w join run r on r.run_id = w.run_id where w.key = $1
"""
EVENTS = """
select partition, position, event_id, run_id, type, schema_version, data::text, recorded_at
from event where event_id = any($1::uuid[])
"""

# The events that name a trial, from its request on.
TRIAL_EVENTS = """
select partition, position, event_id, run_id, type, schema_version, data::text, recorded_at
from event, json_to_record(replace(data::text, '\\u0000', '\\ufffd')::json) as d (
    trial_id text, subject text)
where run_id = $1 and $3 in (d.trial_id, d.subject)
    and position >= (select e.position from event e where e.event_id = $2)
order by position limit $4
"""

# What a run's last judge calls ($3 of them at most, up to a position) took, by criterion.
CALL_COSTS = """
select d.criterion, count(*)::integer, sum(d.prompt_tokens)::bigint,
    sum(d.completion_tokens)::bigint, sum(coalesce(d.cost_microusd, 0))::bigint
from (
    select data from event
    where run_id = $1 and position <= $2 and type = 'JudgeCallRecorded'
    order by position desc limit $3
) last, json_to_record(last.data) as d (
    criterion text, prompt_tokens bigint, completion_tokens bigint, cost_microusd bigint)
group by d.criterion
"""

# A rubric becomes the next version of its name, unless its content is one already.
PUT_RUBRIC = "select version, created_at, added, latest from put_rubric($1, $2, $3)"
# One version of a rubric; where $2 is null the latest.
RUBRIC = """
select name, version, digest, data::text, created_at from rubric
where name = $1 and ($2::integer is null or version = $2) order by version desc limit 1
"""
# A page of a rubric's versions, newest first, below a version that was seen.
RUBRIC_VERSIONS = """
select version, digest, created_at from rubric
where name = $1 and ($2::integer is null or version < $2) order by version desc limit $3
"""
RUBRIC_BY_DIGEST = "select version from rubric where name = $1 and digest = $2"
# A page of rubrics in order of their names, after a name and but for some ($2), each by its latest
# version. Versions have no gaps; what is stored holds no U+0000.
RUBRIC_PAGE = """
select r.name, r.version, r.digest, r.created_at, r.data ->> 'scoring' as scoring,
    json_array_length(r.data -> 'criteria') as n_criteria
from rubric r
where r.name > $1 and r.name <> all ($2::text[])
    and not exists (select 1 from rubric n where n.name = r.name and n.version = r.version + 1)
order by r.name limit $3
"""
