#!/bin/bash
# cec-mpi run in a job of Slurm; written by cec-mpi slurm.
% takes_arguments
#   sbatch [--ntasks=RANKS] THIS_FILE STORE DIR [options of cec-mpi run]
# RANKS are a master and the machines of the store.
% array
# Each task of the array has options of its own, and its results in DIR/1, DIR/2, ...
% accepts
# The master alone: machines join it from jobs of their own.
% preemptible
# Warned of its end, the run writes a checkpoint, and the job continues from it later.
% continues
# The job continues without lost machines, but not without the master's node.
%
@{directives}

set -eo pipefail
% tells
# Slurm warns this shell alone: it tells the launcher, which tells the processes.
launcher='' warned='' again=''
tell() { warned=yes again=yes; [ -z "$launcher" ] || kill -USR1 "$launcher" 2>/dev/null || true; }
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
% continues
summary() { stat -c %i,%y "$out/summary.json" 2>/dev/null || true; }
before=$(summary)
% continues preemptible srun
is_ending() { # whether Slurm preempts this job, or has warned it of its end
    local job
    job=$(SLURM_TIME_FORMAT=%s scontrol show job --oneliner "$SLURM_JOB_ID" |
        grep "^JobId=$SLURM_JOB_ID ")
    [[ "$job" != *" PreemptTime="[0-9]* ]] || return 0
    [[ "$job" =~ " EndTime="([0-9]+) ]] &&
        [ "${BASH_REMATCH[1]}" -le $(($(date +%s) + @{early})) ]
}
%

% plain
@{launch} \
    cec-mpi run --out="$out"@{options} "$@"
% !plain !tells
code=0
@{launch} \
    cec-mpi run --out="$out"@{options} "$@" || code=$?
% tells
code=@{stopped}
if [ -z "$warned" ]; then
    @{launch} \
        cec-mpi run --out="$out"@{options} "$@" &
    sleep 1 # until it can be told
    launcher=$!
    [ -z "$warned" ] || tell
    while true; do
        again='' code=0
        wait "$launcher" || code=$?
        [ -n "$again" ] || break # a warning has ended this wait
    done
fi
% continues
# After a loss, launchers return 0, 137 or 255, whether the run has completed or not.
after=$(summary)
if [ -n "$after" ] && { [ "$code" = 0 ] || [ "$after" != "$before" ]; }; then
    code=0
% continues preemptible srun
elif is_ending; then
    code=@{stopped}
% continues tells
elif [ -n "$warned" ]; then
    code=@{stopped}
% continues
elif [ "$code" = 0 ] || [ "$code" -gt @{stopped} ]; then
    code=@{gone}
fi
% preemptible
case "$code" in
    @{stopped} | 138 | 143) # stopped by a warning, or by one that came too early
        if [ "${SLURM_RESTART_COUNT:-0}" -lt @{restarts} ]; then
            scontrol requeue @{job} && sleep 60 # it ends this script
        fi ;;
esac
% !plain
exit "$code"
