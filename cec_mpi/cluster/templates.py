"""The texts of batch scripts. A slot, ``@{name}``, is filled with a part or a value.

`JOB`, `MASTER` and `MACHINES` are whole scripts. The parts below them are what a
script has or has not. Of the exit codes of cec-mpi, 3 says that a machine failed, and 6 that a
warning stopped the run or the machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping


def filled(template: str, parts: Mapping[str, str], values: Mapping[str, object]) -> str:
    r"""The template with these parts as some of its lines, and then with values in all slots.

    Examples
    --------
    >>> filled("@{start}\n", {"start": "run @{words}\n"}, {"words": "@{start}"})
    'run @{start}\n'
    """
    text = re.sub(
        r"^@\{(\w+)\}\n", lambda found: parts.get(found[1], found[0]), template, flags=re.MULTILINE
    )
    return re.sub(r"@\{(\w+)\}", lambda found: str(values[found[1]]), text)


JOB = r"""#!/bin/bash
# cec-mpi run in a job of Slurm; written by cec-mpi slurm.
@{remark}
@{usage}
@{directives}

set -eo pipefail
@{job_of_slurm}
@{trap}
@{setup}
@{arguments}
@{task}

@{before}
@{start}
@{after}
@{requeue}
exit "$code"
"""

MASTER = r"""#!/bin/bash
# The master of a cec-mpi run, which machines join from jobs of their own; written by cec-mpi slurm.
@{directives}

set -eo pipefail
@{job_of_slurm}
@{setup}
out=@{out}
set -- @{words}

code=0
srun --mpi=none --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    cec-mpi run --out="$out" --resume "$@" || code=$?
@{requeue}
exit "$code"
"""

MACHINES = r"""#!/bin/bash
# Machines that join a cec-mpi run, each a job of its own; written by cec-mpi slurm.
#   sbatch THIS_FILE JOB [options of cec-mpi join]
# JOB is the number of the master's job. A machine that is told to leave is queued again.
@{directives}

set -eo pipefail
@{job_of_slurm}
@{setup}
[ $# -ge 1 ] || { echo "expected the number of the master's job" >&2; exit 2; }
master=${1%%;*} # without the name of a cluster
shift

is_there() { # whether the master's job waits or runs; nobody knows while Slurm does not answer
    local jobs
    jobs=$(squeue --noheader --user="$(id -un)" --format=%A) || return 0
    grep -qx "$master" <<<"$jobs"
}

code=3
while [ "$code" = 3 ] && is_there; do
    code=0
    srun --mpi=none --cpus-per-task="$SLURM_CPUS_PER_TASK" \
        cec-mpi join @{file} --retry 30 --threads "$SLURM_CPUS_PER_TASK" "$@" || code=$?
    [ "$code" != 3 ] || sleep 5 # a machine that can serve no shard fails at once
done
case "$code" in
    0 | 3) # the run is over; but srun leaves with 0, too, when its node fails
        while is_there; do sleep 5; done
        # So it is for those that still wait for a node:
        scancel --quiet --state=PENDING "$SLURM_ARRAY_JOB_ID" || true
        exit 0 ;;
    6 | 138 | 143) # told to leave, or before it could hear; this ends the script
        scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" && sleep 60 ;;
esac
exit "$code"
"""

# --- the job ----------------------------------------------------------------------------------

JOB_OF_SLURM = r"""if [ -z "$SLURM_JOB_ID" ]; then
    echo "not in a job of Slurm: expected sbatch $0" >&2
    exit 2
elif [ "$SLURM_JOB_ID_HET_GROUP_0" = "$SLURM_JOB_ID" ]; then
    echo "this job has $SLURM_HET_SIZE components: expected one, which has all ranks" >&2
    exit 2
fi
# What a shell of srun that submitted this job has left here; srun would take it for options.
unset @{left}
"""

# --- arguments ------------------------------------------------------------------------------

GIVEN = r"""out=@{out}
set -- @{words}
"""

USAGE = r"""#   sbatch [--ntasks=RANKS] THIS_FILE STORE DIR [options of cec-mpi run]
# RANKS are a master and the machines of the store.
"""

TAKEN = r"""[ $# -ge 2 ] || { echo "expected STORE DIR [options of cec-mpi run]" >&2; exit 2; }
out=$2
set -- "$1" "${@:3}"
"""

TASK = r"""# Each task of the array has options of its own, and its results in DIR/1, DIR/2, ...
case "$SLURM_ARRAY_TASK_ID" in
@{choices}
    *) echo "no task $SLURM_ARRAY_TASK_ID: expected 1 to @{tasks}" >&2; exit 2 ;;
esac
out+=/$SLURM_ARRAY_TASK_ID
"""

# --- the run --------------------------------------------------------------------------------

START = r"""code=0
@{launch} \
    cec-mpi run --out="$out"@{resume} "$@" || code=$?
"""

TRAP = r"""# Slurm warns this shell alone: it tells the launcher, which tells the processes.
launcher='' warned='' again=''
tell() { warned=yes again=yes; [ -z "$launcher" ] || kill -USR1 "$launcher" 2>/dev/null || true; }
trap tell USR1
"""

START_AND_TELL = r"""code=6
if [ -z "$warned" ]; then
    @{launch} \
        cec-mpi run --out="$out"@{resume} "$@" &
    sleep 1 # until it can be told
    launcher=$!
    [ -z "$warned" ] || tell
    while true; do
        again='' code=0
        wait "$launcher" || code=$?
        [ -n "$again" ] || break # a warning has ended this wait
    done
fi
"""

REQUEUE = r"""# On a warning the run has written a checkpoint, from which the job continues later.
case "$code" in
    6 | 138 | 143) # stopped by a warning, or by one that came too early
        if [ "${SLURM_RESTART_COUNT:-0}" -lt @{restarts} ]; then
            scontrol requeue @{job} && sleep 60 # it ends this script
        fi ;;
esac
"""

# --- an elastic run, which a launcher's exit code does not describe ---------------------------

REMARK = r"""# The job continues without lost machines, but not without the master's node.
"""

BEFORE = r"""summary() { stat -c %i,%y "$out/summary.json" 2>/dev/null || true; }
before=$(summary)

"""

AFTER = r"""# After a loss, launchers return 0, 137 or 255, whether the run has completed or not.
after=$(summary)
if [ -n "$after" ] && { [ "$code" = 0 ] || [ "$after" != "$before" ]; }; then
    code=0
    ! grep -q '^  "converged": false' "$out/summary.json" || code=8
elif is_ending; then
    code=6
elif [ "$code" = 0 ] || [ "$code" -gt 6 ]; then
    code=3
fi
"""

# --- whether a job that lost its launcher was about to end ----------------------------------

NEVER_WARNED = r"""is_ending() { false; } # nobody warns this job
"""

TOLD = r"""is_ending() { [ -n "$warned" ]; }
"""

ASK_SLURM = r"""is_ending() { # whether Slurm preempts this job, or has warned it of its end
    local job
    job=$(SLURM_TIME_FORMAT=%s scontrol show job --oneliner "$SLURM_JOB_ID" |
        grep "^JobId=$SLURM_JOB_ID ")
    [[ "$job" != *" PreemptTime="[0-9]* ]] || return 0
    [[ "$job" =~ " EndTime="([0-9]+) ]] &&
        [ "${BASH_REMATCH[1]}" -le $(($(date +%s) + @{early})) ]
}
"""
