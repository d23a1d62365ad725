

# Keep @{keep} machines: submit missing ones, at most @{max_starts} within ten minutes.
keep_machines() {
    local machines="cec-mpi-machines-$SLURM_JOB_ID" begin=$SECONDS starts=0 jobs missing
    while true; do
        [ $((SECONDS - begin)) -lt 600 ] || begin=$SECONDS starts=0
        if jobs=$(squeue --noheader --array --user="$(id -un)" --name="$machines" --format=%A); then
            missing=$((@{keep} - $(wc -w <<<"$jobs")))
            if [ "$missing" -gt 0 ]; then
                starts=$((starts + missing))
                if [ "$starts" -gt @{max_starts} ]; then
                    echo "@{max_starts} machines were started within ten minutes: no more are started" >&2
                    return
                fi
                sbatch --quiet --job-name="$machines" --array="1-$missing" @{script} "$SLURM_JOB_ID" ||
                    true
            fi
        fi
        sleep 20
    done
}
keep_machines &
keeper=$!
trap 'kill "$keeper" 2>/dev/null || true' EXIT
