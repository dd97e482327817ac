#!/bin/bash
# Training on four nodes of eight GPUs, by SLURM: sbatch slurm.sh
# One task a node: torchrun, which starts a process for each GPU. A task that fails ends the job. If a node was lost,
# SLURM queues it again; if the program failed more often than --max-restarts allows, it does not.
#SBATCH --job-name=tinydist
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # for --max-restarts: README.md
export NCCL_DEBUG=WARN
export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1
export TORCH_FR_DUMP_TEMP_FILE="$PWD/records-$SLURM_JOB_ID/rank_"
mkdir -p "records-$SLURM_JOB_ID"

srun --kill-on-bad-exit=1 torchrun \
    --nnodes "$SLURM_NNODES" --nproc-per-node 8 --max-restarts 3 \
    --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$first:29500" \
    -m tinydist train --mesh dp=4,tp=8 --zero 1 --precision bf16 --steps 10000 --folder run --save-every 200
