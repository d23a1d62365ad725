#!/bin/bash
# Machines that join a cec-mpi run, each a job of its own; written by cec-mpi slurm.
#   sbatch THIS_FILE JOB [options of cec-mpi join]
# JOB is the number of the master's job. A machine that is told to leave is queued again.
@{directives}

set -eo pipefail
% setup
@{setup}
%
[ $# -ge 1 ] || { echo "expected the number of the master's job" >&2; exit 2; }
master=${1%%;*} # without the name of a cluster
shift

is_there() { # whether the master's job waits or runs; nobody knows while Slurm does not answer
    local jobs
    jobs=$(squeue --noheader --user="$(id -un)" --format=%A) || return 0
    grep -qx "$master" <<<"$jobs"
}

code=@{gone}
while [ "$code" = @{gone} ] && is_there; do
    code=0
    @{launch} \
        cec-mpi join @{file} --retry @{retry} --threads "$SLURM_CPUS_PER_TASK" "$@" || code=$?
    [ "$code" != @{gone} ] || sleep @{pause} # a machine that can serve no shard fails at once
done
case "$code" in
    0 | @{gone}) # the run is over; but srun leaves with 0, too, when its node fails
        while is_there; do sleep 5; done
        # So it is for those that still wait for a node:
        scancel --quiet --state=PENDING "$SLURM_ARRAY_JOB_ID" || true
        exit 0 ;;
    @{stopped} | 138 | 143) # told to leave, or before it could hear
        scontrol requeue @{task} && sleep 60 ;; # it ends this script
esac
exit "$code"
