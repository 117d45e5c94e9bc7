#!/usr/bin/env bash
# One run as a workload of GKE:
#   CLUSTER=my-cluster PROJECT=my-project ZONE=us-west4-a TPU_TYPE=v5litepod-16 IMAGE=gcr.io/my-project/agent_tunix \
#   gke_xpk.sh WORKLOAD RUN_DIRECTORY model=qwen3_8b +experiment=lora_math model.mesh_shape=[2,1,8]
# RUN_DIRECTORY must be in a volume that all pods have mounted.
set -euo pipefail

workload=$1 directory=$2
shift 2
xpk workload create --workload="$workload" --cluster="${CLUSTER:?}" --project="${PROJECT:?}" --zone="${ZONE:?}" \
  --tpu-type="${TPU_TYPE:?}" --num-slices="${SLICES:-1}" --docker-image="${IMAGE:?}" \
  --command="$(printf '%q ' agent-tunix train distributed=auto training.resume=true "hydra.run.dir=$directory" "$@")"
