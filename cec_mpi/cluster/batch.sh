#!/bin/bash
# cec-mpi run in a job of Slurm; written by cec-mpi slurm.
% takes_arguments
#   sbatch [--ntasks=RANKS] THIS_FILE STORE DIR [options of cec-mpi run]
# RANKS are a master, the machines of the store, and spares.
% array
# Each task of the array has options of its own, and its results in DIR/1, DIR/2, ...
% accepts
# The master alone: machines join it from jobs of their own.
% preemptible
# Warned of its end, the run writes a checkpoint, and the job goes on from it later.
% going_on
# The job goes on when it loses machines or nodes, but not without the master's node.
%
@{directives}

set -eo pipefail
% preemptible !srun
# Slurm warns this shell alone: it tells the launcher, which tells the ranks.
launcher='' warned=''
tell() { warned=yes; [ -z "$launcher" ] || kill -USR1 "$launcher" 2>/dev/null || true; }
trap tell USR1
% setup
@{setup}
% takes_arguments
[ $# -ge 2 ] || { echo "expected STORE DIR [options of cec-mpi run]" >&2; exit 2; }
out=$2
set -- "$1" "${@:3}"
% !takes_arguments
out=@{out}
@{arguments}
% array
case "$SLURM_ARRAY_TASK_ID" in
@{choices}
    *) echo "no task $SLURM_ARRAY_TASK_ID: expected 1 to @{last}" >&2; exit 2 ;;
esac
out+=/$SLURM_ARRAY_TASK_ID
%

% plain
@{launch} \
    cec-mpi run --out="$out"@{options} "$@"
% preemptible srun !going_on
code=0
@{launch} \
    cec-mpi run --out="$out"@{options} "$@" || code=$?
% preemptible !srun
code=@{stopped}
if [ -z "$warned" ]; then
    @{launch} \
        cec-mpi run --out="$out"@{options} "$@" &
    sleep 1 # until it can be told
    launcher=$!
    [ -z "$warned" ] || tell
    while true; do
        warned='' code=0
        wait "$launcher" || code=$?
        [ -n "$warned" ] || break # a warning has ended this wait
    done
fi
% going_on srun
summary() { stat -c %i "$out/summary.json" 2>/dev/null || true; }
% going_on srun preemptible
is_ending() { # whether Slurm preempts this job, or has warned it of its end
    local job
    job=$(SLURM_TIME_FORMAT=%s scontrol show job --oneliner "$SLURM_JOB_ID" |
        grep "^JobId=$SLURM_JOB_ID ")
    [[ "$job" != *" PreemptTime="[0-9]* ]] || return 0
    [[ "$job" =~ " EndTime="([0-9]+) ]] &&
        [ "${BASH_REMATCH[1]}" -le $(($(date +%s) + @{early})) ]
}
% going_on srun
before=$(summary) code=0
@{launch} \
    cec-mpi run --out="$out"@{options} "$@" || code=$?
# The code is the highest of all processes, 137 when one was killed. A run that came to
# its end in spite of that has written a new summary.
after=$(summary)
if [ "$code" -gt @{stopped} ] && [ -n "$after" ] && [ "$after" != "$before" ]; then
    code=0
% going_on srun preemptible
elif [ "$code" -gt @{stopped} ] && is_ending; then
    code=@{stopped}
% going_on srun
fi
% preemptible
case "$code" in
    @{codes}) # stopped on a warning, or by one that came too early
        if [ "${SLURM_RESTART_COUNT:-0}" -lt @{restarts} ]; then
            scontrol requeue @{job} && sleep 60 # it ends this script
        fi ;;
esac
% !plain
exit "$code"
