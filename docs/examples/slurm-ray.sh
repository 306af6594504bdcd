#!/bin/bash
# An audit on four machines with four GPUs each: sbatch slurm-ray.sh /shared/my-audit
# The folder, the Python environment and your home directory lie on a file system that all machines mount.
# When the time is over, submit the same line again: what is finished stays. `minutes = 700` in [budget] ends in good time.
#SBATCH --job-name=stillme
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --time=12:00:00
#SBATCH --requeue

set -euo pipefail

audit=${1:?name the folder of audit.toml, with kind = "ray" in [executor]}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 10000))

# Ray's machines show each other a token; it is made once, before they start together.
ray get-auth-token --generate > /dev/null

srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" \
    ray symmetric-run --address "$head:$port" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus=4 --disable-usage-stats -- \
    env RAY_ADDRESS="$head:$port" stillme run "$audit"
